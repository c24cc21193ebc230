"""The tree, one queue, and a change of quota from the grid to its taking back."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect

from queuer.domain.quantity import parse_quantity
from tests.ui.browser import opened
from tests.ui.jobs import Waiting
from tests.ui.site import Site

GPU = "nvidia.com/gpu"
# All rows at one moment: jobs start and end while the test reads.
_ROWS = """rows => rows.map(row => [
  row.getAttribute('aria-level'), row.querySelectorAll('[role=gridcell]')[1].innerText,
])"""


def rest(demo: Site, path: str) -> dict[str, Any]:
    """The API's answer."""
    with urllib.request.urlopen(f"{demo.url}/api/v1{path}") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def used(cell: str) -> int:
    return parse_quantity(cell.split("/")[0].strip().replace("\u202f", ""), resource=GPU)


def borrowed(queue: dict[str, Any]) -> int:
    return sum(int(each["borrowed"]) for each in queue["accounts"] if each["resource"] == GPU)


def test_what_children_use_is_what_their_parent_uses(page: Page) -> None:
    page.goto("/queues")
    tree = page.get_by_role("treegrid")
    expect(tree.get_by_role("row").nth(2)).to_be_visible()
    rows = [(int(level), used(cell)) for level, cell in tree.locator("[data-index]").evaluate_all(_ROWS)]
    sums: dict[int, int] = {}
    for level, amount in reversed(rows):
        assert sums.pop(level + 1, amount) == amount
        sums[level] = sums.get(level, 0) + amount
    assert len(rows) > 12


def test_what_pods_outside_the_queues_use_is_told_on_root_and_in_the_overview(page: Page) -> None:
    """Guards against nodes that are full of nobody: 24 GPUs are told beside what queues use."""

    def with_strangers(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        rows = [*found.get("capacity", []), *(a for q in found.get("items", [])[:1] for a in q["accounts"])]
        for row in rows:
            if row["resource"] == GPU:
                row["outside"] = "24"
        route.fulfill(response=answer, json=found)

    page.route(re.compile(r"/api/v1/(overview|queues)$"), with_strangers)
    page.goto("/queues")
    root = page.get_by_role("treegrid").locator("[data-index='0']")
    expect(root).to_contain_text("24 by pods outside the queues")
    expect(page.get_by_text("by pods outside the queues")).to_have_count(1)
    page.goto("/")
    expect(page.get_by_text("24 by pods outside the queues")).to_be_visible()


# How long the drawn parts of each row's bar are, and its used amount: by the right edge of what is own or borrowed.
_BARS = """rows => rows.map(row => {
  const bar = row.querySelector('svg.bar');
  const parts = [...bar.querySelectorAll(".bar-own, .bar-plain, rect[fill$='h)']")];
  const end = Math.max(0, ...parts.map(part => Number(part.getAttribute('x')) + Number(part.getAttribute('width'))));
  return [end, row.querySelectorAll('[role=gridcell]')[1].innerText];
})"""


def test_bars_of_one_screen_are_compared_by_their_length(page: Page) -> None:
    """The amount is the length, whatever level of the tree; each on its own scale only where that is chosen."""
    page.goto("/queues")
    rows = page.get_by_role("treegrid").locator("[data-index]")
    expect(rows.nth(2)).to_be_visible()
    scales = {round(end / used(cell), 2) for end, cell in rows.evaluate_all(_BARS) if used(cell)}
    assert len(scales) == 1
    page.get_by_label("each bar on its own scale").check()
    page.wait_for_url("**scale=own**")
    assert len({round(end / used(cell), 2) for end, cell in rows.evaluate_all(_BARS) if used(cell)}) > 1


def test_a_number_leads_to_as_many_rows(page: Page, waiting: Waiting) -> None:
    """The chip of the tree, and what the overview says of jobs that can never start."""
    page.goto("/queues")
    root = page.get_by_role("treegrid").locator("[data-index='0']")
    chip = root.get_by_role("link", name="can never start")
    count = int(chip.inner_text().split()[1])
    assert count >= 2
    chip.click()
    expect(page.get_by_role("grid", name="Jobs").locator("[data-index]")).to_have_count(count)
    reasons = page.get_by_role("region", name="Pending by reason").get_by_role("row")
    page.goto("/")
    expect(reasons.nth(1)).to_be_visible()
    for index in range(1, reasons.count()):
        jobs = int(reasons.nth(index).get_by_role("cell").first.inner_text())
        verdict = reasons.nth(index).locator(".chip")
        if not verdict.count():  # a mere wait: these start and come while the test looks
            continue
        said = verdict.inner_text().split()[-1]
        reasons.nth(index).get_by_role("link").click()
        assert f"verdict={said}" in page.url
        expect(page.get_by_role("grid", name="Jobs").locator("[data-index]")).to_have_count(jobs)
        page.go_back()
        expect(reasons.nth(1)).to_be_visible()
    page.get_by_role("region", name="Attention").get_by_role("link", name="can never start").click()
    expect(page.get_by_role("grid", name="Jobs").locator("[data-index]")).not_to_have_count(0)


def test_the_tree_is_walked_with_arrows_and_says_where_one_is(page: Page) -> None:
    page.goto("/queues")
    root = page.get_by_role("treegrid").locator("[data-index='0']")
    root.focus()
    expect(root).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowLeft")
    expect(root).to_have_attribute("aria-expanded", "false")
    expect(page.locator("[data-index='1']")).to_have_count(0)
    assert "closed=root" in page.url
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    first = page.locator("[data-index='1']")
    expect(first).to_be_focused()
    assert (first.get_attribute("aria-level"), first.get_attribute("aria-posinset")) == ("2", "1")


def test_a_full_cluster_is_no_reason_to_worry(page: Page) -> None:
    page.goto("/queues")
    tree = page.get_by_role("treegrid")
    expect(tree.get_by_role("row").nth(2)).to_be_visible()
    assert tree.locator(".chip-warning, .chip-critical").count() == 0


def test_a_queue_says_how_much_may_start_and_who_waits_in_which_order(page: Page, demo: Site) -> None:
    path = max(rest(demo, "/queues")["items"], key=lambda each: each["leaf"] * each["pendingWorkloads"])[
        "path"
    ]
    page.goto(f"/queues/{path}")
    room = page.get_by_role("region", name="May start now")
    expect(room).to_contain_text(rest(demo, f"/queues/{path}/headroom")["text"])
    told = [item["workload"]["name"] for item in rest(demo, f"/queues/{path}/pending")["items"]]
    shown = page.get_by_role("tabpanel").get_by_role("listitem").get_by_role("link")
    expect(shown).to_have_text(told)
    page.get_by_role("tab", name="Pending").press("ArrowRight")
    expect(page.get_by_role("tab", name="Running")).to_be_focused()
    assert "tab=Running" in page.url


def test_a_limit_is_cut_with_a_preview_and_a_reason_and_taken_back(page: Page, demo: Site) -> None:
    before = rest(demo, "/queue-tree")
    path = max(rest(demo, "/queues")["items"], key=lambda each: each["leaf"] and borrowed(each))["path"]
    page.goto(f"/edit?root={path}")
    own = page.get_by_label(f"guaranteed {GPU} of {path}").input_value()
    page.get_by_label(f"limit {GPU} of {path}").fill(own)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="This is planned")).to_be_visible()
    expect(page.get_by_role("region", name="What changes")).to_contain_text(path)
    expect(page.get_by_role("region", name="What it means")).to_contain_text("Running jobs are kept")
    expect(page.get_by_role("region", name="What it means")).to_contain_text(
        "would have to go for the limits to hold"
    )
    expect(page.get_by_text("over limit")).to_have_count(1)  # a cut is told once, and by no place in a list
    expect(page.get_by_role("main")).not_to_contain_text("quota[0]")
    apply = page.get_by_role("button", name="Apply")
    expect(apply).to_be_disabled()
    page.get_by_label("Reason").fill("an experiment is over")
    expect(apply).to_be_disabled()
    page.get_by_label("Type the name").fill(path)
    apply.click()
    expect(page.get_by_role("heading", name="This was applied")).to_be_visible()
    expect(page.get_by_role("region", name="What was expected")).to_contain_text("Running jobs are kept")
    entry = rest(demo, "/audit?limit=1")["items"][0]
    assert (entry["reason"], entry["queues"]) == ("an experiment is over", [path])
    page.goto("/queues?only=attention")
    expect(page.get_by_role("treegrid")).to_contain_text("over limit")
    page.goto(f"/edit/{entry['revision']}")
    page.get_by_role("button", name="Take this back").click()
    expect(page.get_by_role("heading", name="This is planned")).to_be_visible()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", name="This was applied")).to_be_visible()
    assert rest(demo, "/queue-tree") == before


def test_two_admins_do_not_overwrite_each_other(chromium: Browser, demo: Site, page: Page) -> None:
    path = next(each["path"] for each in rest(demo, "/queues")["items"] if each["leaf"])
    label = f"guaranteed {GPU} of {path}"
    page.goto(f"/edit?root={path}")
    mine = int(page.get_by_label(label).input_value())
    page.get_by_label(label).fill(str(mine + 1))
    with opened(chromium, demo.url) as other:
        other.goto(f"/edit?root={path}")
        other.get_by_label(label).fill(str(mine + 2))
        other.get_by_role("button", name="Preview").click()
        other.get_by_label("Reason").fill("the other was faster")
        other.get_by_role("button", name="Apply").click()
        expect(other.get_by_role("heading", name="This was applied")).to_be_visible()
    page.get_by_role("button", name="Preview").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Somebody has changed the same meanwhile")
    clash = alert.get_by_role("row").nth(1).get_by_role("cell")
    expect(clash).to_have_text(["guaranteed gpu", str(mine), str(mine + 2), str(mine + 1), "Use mine"])
    expect(page.get_by_label(label)).to_have_value(str(mine + 2))
    alert.get_by_role("button", name="Use mine").click()
    expect(alert).to_have_count(0)
    expect(page.get_by_label(label)).to_have_value(str(mine + 1))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="This is planned")).to_be_visible()


def test_a_plan_that_others_overtook_is_not_applied_and_the_edit_is_kept(
    chromium: Browser, demo: Site, page: Page
) -> None:
    path = next(each["path"] for each in rest(demo, "/queues")["items"] if each["leaf"])
    label = f"guaranteed {GPU} of {path}"
    page.goto(f"/edit?root={path}")
    mine = int(page.get_by_label(label).input_value()) + 1
    page.get_by_label(label).fill(str(mine))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="This is planned")).to_be_visible()
    with opened(chromium, demo.url) as other:
        other.goto(f"/edit?root={path}")
        other.get_by_label(label).fill(str(mine + 1))
        other.get_by_role("button", name="Preview").click()
        other.get_by_role("button", name="Apply").click()
        expect(other.get_by_role("heading", name="This was applied")).to_be_visible()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("guaranteed")
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    page.get_by_role("link", name="Go on with my edit").click()
    expect(page.get_by_label(label)).to_have_value(str(mine))


def test_a_queue_is_held_and_opened_again_by_who_may(page: Page, demo: Site) -> None:
    path = next(each["path"] for each in rest(demo, "/queues")["items"] if each["leaf"])
    page.goto(f"/queues/{path}")
    page.get_by_role("button", name="Hold").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the switch is replaced")
    dialog.get_by_role("button", name="Hold").click()
    expect(dialog.get_by_role("status")).to_contain_text("It is held.")
    dialog.get_by_role("button", name="Close").click()
    assert rest(demo, f"/queues/{path}")["state"] == "held"
    head = page.locator(".job-head")
    expect(head).to_contain_text("since ")
    expect(head).to_contain_text("the switch is replaced")
    page.get_by_role("button", name="Resume").click()
    dialog.get_by_role("button", name="Resume").click()
    expect(dialog.get_by_role("status")).to_contain_text("It is open.")
    assert rest(demo, f"/queues/{path}")["state"] == "open"


def test_who_may_not_sees_which_right_is_missing(page: Page, demo: Site) -> None:
    """The buttons are there, and dead; the server refuses the same (`tests/api/test_states.py`)."""
    path = next(each["path"] for each in rest(demo, "/queues")["items"] if each["leaf"])
    page.route(
        f"**/api/v1/queues/{path}", lambda route: route.fulfill(json={**route.fetch().json(), "may": []})
    )
    page.goto(f"/queues/{path}")
    for name in ("Hold", "Drain"):
        button = page.get_by_role("button", name=name)
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", f"needs the right to update queues.queuer.dev {path}")
    expect(page.get_by_role("link", name="Edit quota", exact=True)).to_have_count(0)

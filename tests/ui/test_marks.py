"""The list of jobs as a tool: marked rows are told the same at once, and columns are chosen in the address."""

from __future__ import annotations

import json
import urllib.request

from playwright.sync_api import Browser, Page, expect

from tests.ui.browser import opened
from tests.ui.jobs import Waiting, vanished
from tests.ui.looks import settled
from tests.ui.site import Site


def tell(page: Page, verb: str, *, reason: str) -> None:
    """Ask for it, for all that are marked."""
    page.get_by_role("group", name="Marked jobs").get_by_role("button", name=verb).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason, for the audit").fill(reason)
    dialog.get_by_role("button", name=verb).click()


def closed(page: Page) -> None:
    """The dialog is gone."""
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_marked_jobs_are_told_together_and_each_is_answered(page: Page, waiting: Waiting) -> None:
    settled(page, f"/jobs?namespace={waiting.queue.rpartition('.')[2]}&state=Queued,Held")
    rows = page.get_by_role("grid", name="Jobs").locator("[data-index]")
    for name in ("large", "lost"):
        row = rows.filter(has_text=name)
        row.focus()
        page.keyboard.press("Space")
        expect(row).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("2 marked")).to_be_visible()
    dialog = page.get_by_role("dialog")
    for verb, reason, said in (
        ("Hold", "the data is wrong", "held"),
        ("Release", "it is mended", "released"),
    ):
        tell(page, verb, reason=reason)
        expect(dialog.get_by_text("2 of 2 done.")).to_be_visible()
        expect(dialog.get_by_text(f"done: {said}")).to_have_count(2)
        closed(page)


def test_a_priority_is_given_and_taken_back(page: Page, demo: Site, waiting: Waiting) -> None:
    settled(page, f"/jobs/{waiting.large}")
    for priority in ("7", ""):
        page.get_by_role("button", name="Set priority").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Priority").fill(priority)
        dialog.get_by_role("button", name="Set priority").click()
        expect(dialog.get_by_text("done: ")).to_be_visible()
        closed(page)
        expect(page.locator(".job-head")).to_contain_text(f"priority {priority or 0}")


def test_who_cannot_be_told_is_named_beside_who_was(page: Page, demo: Site) -> None:
    uid = demo.run(vanished(demo))
    with urllib.request.urlopen(f"{demo.url}/api/v1/workloads/{uid}") as answer:
        name = json.load(answer)["name"]
    settled(page, f"/jobs?deleted=true&name={name}")
    page.get_by_label("mark", exact=True).check()
    tell(page, "Hold", reason="too late")
    expect(page.get_by_role("dialog")).to_contain_text("refused")
    expect(page.get_by_role("dialog")).to_contain_text("has ended or is gone")


def test_columns_are_kept_in_the_address(chromium: Browser, demo: Site, page: Page) -> None:
    settled(page, "/jobs")
    grid = page.get_by_role("grid", name="Jobs")
    page.get_by_text("columns", exact=True).click()
    chooser = page.get_by_role("group", name="Columns")
    chooser.get_by_label("attempt").check()
    chooser.get_by_label("user").uncheck()
    expect(grid.get_by_role("columnheader", name="attempt")).to_be_visible()
    with opened(chromium, demo.url) as other:
        settled(other, page.url)
        there = other.get_by_role("grid", name="Jobs")
        expect(there.get_by_role("columnheader", name="attempt")).to_be_visible()
        expect(there.get_by_role("columnheader", name="user")).to_have_count(0)


def test_live_jobs_are_grouped_and_a_group_is_opened(page: Page, demo: Site, waiting: Waiting) -> None:
    settled(page, "/jobs")
    page.get_by_label("group by").select_option("reason")
    expect(page.get_by_role("columnheader", name="ask for")).to_be_visible()
    with urllib.request.urlopen(f"{demo.url}/api/v1/workloads?groupBy=reason") as answer:
        groups = {each["key"]: each["jobs"] for each in json.load(answer)["groups"] if each["key"]}
    # Few enough for all their rows to be drawn.
    token, jobs = min(groups.items(), key=lambda group: group[1])
    row = page.get_by_role("row").filter(has_text=token)
    expect(row).to_contain_text(str(jobs))
    row.get_by_role("link").click()
    page.wait_for_url(f"**reason={token}**")
    grid = page.get_by_role("grid", name="Jobs")
    expect(grid.get_by_role("row")).to_have_count(jobs + 1)

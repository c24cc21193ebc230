"""One job's screen and the list: why it waits, what would help, and what hostile names can do (nothing)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.ui.browser import opened, restored
from tests.ui.jobs import HOSTILE, Waiting, vanished
from tests.ui.looks import settled
from tests.ui.site import Site


def test_the_banner_says_what_queuer_why_says(page: Page, demo: Site, waiting: Waiting) -> None:
    page.goto(f"/jobs/{waiting.large}")
    shown = page.get_by_test_id("reason").inner_text()
    namespace = waiting.queue.rpartition(".")[2]
    told = subprocess.run(
        [sys.executable, "-m", "queuer", "why", "large", "-n", namespace],
        env={**os.environ, "QUEUER_API": demo.url}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert f"CHANGE  {shown}" in told.splitlines()
    assert shown.startswith("ExceedsMaxQuota: ")


_COPIED = (
    "[...document.querySelectorAll('button[title]')].map(b => b.title).filter(t => t.startsWith('queuer '))"
)


def test_each_command_that_is_copied_from_a_job_runs_as_it_stands(
    page: Page, demo: Site, waiting: Waiting
) -> None:
    """A shell takes them, and they ask what the page asks: What if with its priority, events by the job's name."""
    home = {
        **os.environ,
        "QUEUER_API": demo.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for uid in (waiting.large, waiting.hostile, waiting.lost):
        settled(page, f"/jobs/{uid}")
        page.get_by_label("priority", exact=True).fill("7")
        copied: list[str] = page.evaluate(_COPIED)
        assert any("events job/" in line for line in copied)
        assert any(" --priority=7" in line for line in copied)
        for line in copied:
            done = subprocess.run(line, shell=True, env=home, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{line}: {done.stderr}"


def test_a_job_that_runs_says_since_when_until_when_and_whether_it_may_be_evicted(page: Page) -> None:
    settled(page, "/jobs?state=Running")
    page.get_by_role("grid", name="Jobs").locator("[data-index='0']").get_by_role("link").first.click()
    expect(page.get_by_text("runs since ")).to_be_visible()
    terms = page.get_by_role("region", name="Asked for and available")
    expect(terms.get_by_role("row", name="promised end")).to_be_visible()
    expect(terms.get_by_role("row", name="evictable")).to_be_visible()


def explained(page: Page, uid: str, **changes: Any) -> Locator:
    """The job's page, whose answer has these fields; its explanation changed by `explanation`, the detail in it by
    `detail`.
    """

    def answer(route: Route) -> None:
        job = route.fetch().json()
        job["explanation"] |= changes.get("explanation", {})
        job["explanation"]["detail"] |= changes.get("detail", {})
        own = {key: value for key, value in changes.items() if key not in ("explanation", "detail")}
        route.fulfill(json=job | own)

    page.route(f"**/api/v1/workloads/{uid}", answer)
    settled(page, f"/jobs/{uid}")
    return page.get_by_label("Why", exact=True)


def test_a_job_page_says_each_thing_once_and_nothing_of_its_own_beside_it(
    page: Page, waiting: Waiting
) -> None:
    """Reservation, start and obstacles come from the answer: the page had opposite sentences of its own."""
    said = {
        "estimate": "starts in 4m to 8m from now",
        "reserved": "n00001, from 4m from now at the latest",
        "ahead": "6 of the 7 that wait in its queue",
    }
    other = {"token": "BehindInQueue", "verdict": "WAIT", "text": "6 go before it", "since": None}
    explained(
        page,
        waiting.large,
        explanation={
            "others": [other],
            "wouldAdmit": [],
            "paragraphs": [{"label": label, "text": text} for label, text in said.items()],
        },
    )
    main = page.locator("main")
    for text in (*said.values(), "6 go before it"):
        expect(main.get_by_text(text)).to_have_count(1)
    expect(page.get_by_role("region", name="Also in its way").get_by_role("listitem")).to_have_count(1)
    for text in ("no reservation", "Nothing else blocks it", "No single change", "likely"):
        expect(main.get_by_text(text)).to_have_count(0)


def test_a_mere_wait_is_said_by_its_reason_alone(page: Page, waiting: Waiting) -> None:
    """No chip WAIT beside the token and the sentence, in a list and on a page; a verdict to act on has its chip."""
    settled(page, "/jobs?verdict=WAIT")
    grid = page.get_by_role("grid", name="Jobs")
    expect(grid.locator("[data-index='0'] b")).to_be_visible()
    expect(grid.locator(".chip-wait")).to_have_count(0)
    grid.locator("[data-index='0'] a").first.click()
    expect(page.get_by_test_id("reason")).to_be_visible()
    expect(page.get_by_label("Why", exact=True).locator(".chip-wait")).to_have_count(0)
    settled(page, "/jobs?verdict=CHANGE")
    expect(grid.locator(".chip-change").first).to_be_visible()


def test_the_timeline_of_a_job_that_has_ended_stays_in_its_lane(page: Page, waiting: Waiting) -> None:
    ran = {
        "state": "Running",
        "from": "2026-03-04T14:07:31Z",
        "to": "2026-03-04T14:07:51Z",
        "seconds": 20,
        "cause": None,
    }
    over = {"state": "Succeeded", "from": "2026-03-04T14:07:51Z", "to": None, "seconds": 900, "cause": None}

    def ended(route: Route) -> None:
        life = {"submitted": ran["from"], "spans": [ran, over], "reasons": [], "ticks": []}
        route.fulfill(json={**route.fetch().json(), **life})

    page.route("**/timeline", ended)
    page.set_viewport_size({"width": 390, "height": 640})
    settled(page, f"/jobs/{waiting.large}")
    spans = page.locator(".lane .span")
    expect(spans).to_have_text(["Running"])
    juts = "all => all.filter(e => e.getBoundingClientRect().right > e.parentElement.getBoundingClientRect().right + 1)"
    assert spans.evaluate_all(f"{juts}.length") == 0


def test_an_eviction_is_told_with_its_reason_for_as_long_as_the_job_waits(
    page: Page, waiting: Waiting
) -> None:
    """For whom, and why this one; a job that runs again has other news."""
    note = "reclaimed for root.vision, as it had lost least: 4 gpu-minutes, the next 90"
    evicted = {"at": "2026-03-04T14:07:31Z", "cause": "reclaim", "note": note, "by": None}
    banner = explained(page, waiting.large, detail={"evicted": evicted})
    expect(banner).to_contain_text(note)
    restored(page)
    banner = explained(
        page,
        waiting.large,
        state="Running",
        detail={"evicted": evicted},
        explanation={"primary": None, "verdict": None},
    )
    expect(banner).to_contain_text("All its pods run.")
    expect(banner).not_to_contain_text("reclaimed")


def test_a_queue_that_does_not_exist_is_told_with_the_nearest(page: Page, waiting: Waiting) -> None:
    page.goto(f"/jobs/{waiting.lost}")
    banner = page.get_by_label("Why", exact=True)
    expect(banner).to_contain_text("CHANGE")
    expect(banner).to_contain_text(f"did you mean {waiting.queue}")
    expect(banner.get_by_text("kubectl label job lost")).to_be_visible()


def test_a_name_that_is_markup_is_text(page: Page, waiting: Waiting) -> None:
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
    page.goto(f"/jobs/{waiting.hostile}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
    page.goto(f"/jobs?queue={waiting.queue}&state=Queued")
    expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
    assert page.locator("img").count() == 0


def test_what_if_answers_and_reserves_nothing(page: Page, demo: Site, waiting: Waiting) -> None:
    events = f"SELECT count(*) FROM event WHERE uid = '{waiting.large}'"
    before = demo.run(demo.cluster.scene.value(events))
    page.goto(f"/jobs/{waiting.large}")
    page.get_by_label("pods", exact=True).fill("401")
    page.get_by_role("button", name="Would it start?").click()
    expect(page.get_by_text("It could never start.")).to_be_visible()
    assert demo.run(demo.cluster.scene.value(events)) == before


def test_a_hold_is_asked_for_with_its_reason_and_answered(page: Page, waiting: Waiting) -> None:
    page.goto(f"/jobs/{waiting.hostile}")
    page.get_by_role("button", name="Hold").click()
    page.get_by_label("Reason, for the audit").fill("the data set is wrong")
    page.get_by_role("dialog").get_by_role("button", name="Hold").click()
    expect(page.get_by_text("done: held", exact=True)).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_label("Why", exact=True)).to_contain_text("OnHold")
    page.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    expect(page.get_by_text("done: released", exact=True)).to_be_visible()


def test_a_queue_that_is_not_there_is_a_filter_that_nothing_matches(page: Page, waiting: Waiting) -> None:
    page.goto(f"/jobs?queue={waiting.queue}x")
    jobs = page.get_by_role("region", name="Jobs")
    expect(jobs).to_contain_text(f"did you mean {waiting.queue}")
    expect(page.get_by_role("alert")).to_have_count(0)
    jobs.get_by_role("button", name="Leave the queue out").click()
    expect(jobs.get_by_role("row").nth(1)).to_be_visible()
    assert page.url.endswith("/jobs")


def test_the_address_shows_the_same_elsewhere(
    chromium: Browser, demo: Site, page: Page, waiting: Waiting
) -> None:
    page.goto("/jobs")
    page.get_by_label("reason", exact=True).fill("ExceedsMaxQuota")
    page.get_by_role("button", name="Queued").click()
    expect(page.get_by_role("link", name="large")).to_be_visible()
    page.wait_for_url("**reason=ExceedsMaxQuota**")
    with opened(chromium, demo.url) as other:
        other.goto(page.url)
        expect(other.get_by_label("reason", exact=True)).to_have_value("ExceedsMaxQuota")
        expect(other.get_by_role("button", name="Queued")).to_have_attribute("aria-pressed", "true")
        expect(other.get_by_role("link", name="large")).to_be_visible()


def test_what_matches_nothing_says_so_and_how_to_see_all(page: Page) -> None:
    page.goto("/jobs?name=nobody")
    expect(page.get_by_text("No job matches name=nobody.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_role("grid", name="Jobs")).to_be_visible()


def test_a_job_that_was_deleted_shows_its_history(page: Page, demo: Site) -> None:
    page.goto(f"/jobs/{demo.run(vanished(demo))}")
    expect(page.get_by_text("This job was deleted; what follows is its history.")).to_be_visible()
    expect(page.get_by_role("region", name="Timeline")).to_be_visible()


def test_rows_are_walked_and_opened_by_keys(page: Page) -> None:
    page.goto("/jobs")
    first = page.get_by_role("grid", name="Jobs").locator("[data-index='0']")
    first.focus()
    page.keyboard.press("j")
    second = page.locator("[data-index='1']")
    expect(second).to_be_focused()
    name = second.get_by_role("link").first.inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


@pytest.mark.parametrize("path", ["/jobs", "/queues"])
def test_a_list_fills_the_window_and_alone_scrolls(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 640})
    settled(page, path)
    rows = page.locator(".table-frame, .tree")
    assert rows.evaluate("rows => rows.scrollHeight > rows.clientHeight")
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")


def test_who_evicts_is_told_what_is_lost_and_what_follows(page: Page, demo: Site) -> None:
    settled(page, "/jobs?state=Running")
    page.get_by_role("grid", name="Jobs").locator("[data-index='0']").get_by_role("link").first.click()
    page.get_by_role("button", name="Evict").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("what they have not saved is lost")
    expect(dialog).to_contain_text(re.compile(r"It has run for \d+ . on \d+ gpu"))
    expect(dialog).to_contain_text("may start again after a minute")


def test_the_list_holds_no_more_than_rows(page: Page, demo: Site) -> None:
    with page.expect_response(
        lambda answer: "/workloads?" in answer.url and "groupBy" not in answer.url
    ) as found:
        page.goto("/jobs")
    items = json.loads(found.value.text())["items"]
    assert items
    assert not {"podSets", "spec", "explanation"} & items[0].keys()

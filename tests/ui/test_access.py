"""For people who see less, zoom in or use no mouse: nothing that axe counts, nothing cut off, on any screen's parts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.ui.browser import failing, opened
from tests.ui.jobs import Waiting, vanished
from tests.ui.looks import cut_off, in_both_colours, settled, whole_when_narrow
from tests.ui.site import Site

GPU = "nvidia.com/gpu"
PARTS = (
    "job-waiting", "job-misled", "job-running", "job-deleted", "job-missing", "jobs-none", "cycle",
    "queue-Pending", "queue-Running", "queue-History", "queue-Policy", "queue-Changes", "queue-missing",
    "edit-text", "plan", "login",
)  # fmt: skip


def first(demo: Site, question: str, key: str) -> str:
    """A word of the first item that the API lists."""
    with urllib.request.urlopen(f"{demo.url}/api/v1/{question}") as answer:
        return str(json.load(answer)["items"][0][key])


@pytest.fixture(scope="module")
def places(chromium: Browser, demo: Site, waiting: Waiting) -> dict[str, str]:
    """Addresses of what a screen shows in its several states, by name."""
    queue = f"/queues/{waiting.queue}"
    with opened(chromium, demo.url) as page:
        page.goto(f"/edit?root={waiting.queue}")
        own = page.get_by_label(f"guaranteed {GPU} of {waiting.queue}").input_value()
        page.get_by_label(f"limit {GPU} of {waiting.queue}").fill(own)
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("heading", name="This is planned")).to_be_visible()
        plan = page.url
    return {
        "job-waiting": f"/jobs/{waiting.large}",
        "job-misled": f"/jobs/{waiting.lost}",
        "job-running": f"/jobs/{first(demo, 'workloads?state=Running&limit=1', 'uid')}",
        "job-deleted": f"/jobs/{demo.run(vanished(demo))}",
        "job-missing": "/jobs/nobody",
        "jobs-none": "/jobs?name=nobody",
        "cycle": f"/cycles/{first(demo, 'cycles?limit=1', 'id')}",
        **{f"queue-{tab}": f"{queue}?tab={tab}" for tab in ("Pending", "Running", "History", "Policy", "Changes")},
        "queue-missing": f"{queue}x",
        "edit-text": f"/edit?root={waiting.queue}&as=text",
        "plan": plan,
        "login": "/login",
    }  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_axe_finds_nothing_in_a_part_and_a_narrow_window_loses_nothing(
    page: Page, places: dict[str, str], name: str
) -> None:
    settled(page, places[name])
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert in_both_colours(page, name) == []
    whole_when_narrow(page)


def test_the_login_form_has_its_style_and_says_whose_rights_it_gives(page: Page) -> None:
    settled(page, "/login")
    panel = page.get_by_role("main")
    box = panel.bounding_box()
    assert box is not None
    assert box["x"] == pytest.approx((1440 - box["width"]) / 2, abs=20)
    expect(panel.get_by_label("A token of the cluster")).to_have_attribute("type", "password")
    expect(panel).to_contain_text("what the user or service account of the token may in the cluster")


def help_dialog(page: Page) -> None:
    page.get_by_role("button", name="Keys and help").click()


def command_dialog(page: Page) -> None:
    page.get_by_role("button", name="Hold").click()


def marked(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_label("mark all that are loaded").check()


def columns(page: Page) -> None:
    settled(page, "/jobs")
    page.get_by_text("columns", exact=True).click()


def login_ended(page: Page) -> None:
    failing(page, "**/api/v1/**", "unauthenticated", "the token has expired")
    page.goto("/")
    expect(page.get_by_text("Your login has ended.")).to_be_visible()


@pytest.mark.parametrize("open_", [help_dialog, command_dialog, marked, columns, login_ended])
def test_axe_finds_nothing_in_what_opens(page: Page, waiting: Waiting, open_: Callable[[Page], None]) -> None:
    settled(page, f"/jobs/{waiting.large}")
    open_(page)
    assert in_both_colours(page, open_.__name__) == []


@pytest.mark.parametrize("name", ["job-waiting", "job-misled", "job-running", "job-deleted"])
def test_a_job_is_read_at_four_times_its_size(
    chromium: Browser, demo: Site, places: dict[str, str], name: str
) -> None:
    with opened(chromium, demo.url, viewport={"width": 360, "height": 640}) as page:
        settled(page, places[name])
        assert cut_off(page) == []
        # Text needs no sideways scrolling, tables included.
        wide = page.evaluate(
            "[...document.querySelectorAll('main .panel')].filter(e => e.scrollWidth > e.clientWidth + 1)"
            ".map(e => e.getAttribute('aria-label') || e.innerText.slice(0, 40))"
        )
        assert wide == []


def test_who_wants_no_motion_gets_none(chromium: Browser, demo: Site, waiting: Waiting) -> None:
    with opened(chromium, demo.url, reduced_motion="reduce") as page:
        settled(page, f"/jobs/{waiting.large}")
        command_dialog(page)
        moves = """[...document.querySelectorAll('*')].filter(e => {
          const s = getComputedStyle(e);
          return s.animationName !== 'none' || parseFloat(s.transitionDuration) > 0 || s.scrollBehavior === 'smooth';
        }).length + document.getAnimations().length"""
        assert page.evaluate(moves) == 0

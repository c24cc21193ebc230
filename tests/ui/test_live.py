"""Live answers: one stream for all tabs, rows that stand still under the pointer, and a button that stops it all."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from tests.ui.site import Site


def streams(demo: Site) -> int:
    """How many streams the server feeds."""
    return int(demo.metric("queuer_stream_clients"))


def test_tabs_of_one_browser_share_a_stream(chromium: Browser, demo: Site) -> None:
    context = chromium.new_context(base_url=demo.url)
    before = streams(demo)
    tabs = [context.new_page() for _ in range(8)]
    for tab in tabs:
        tab.goto("/queues")
    for tab in tabs:
        expect(tab.get_by_role("status")).to_contain_text("live")
    assert streams(demo) == before + 1
    context.close()


def test_what_happens_is_shown_without_a_reload(page: Page, demo: Site) -> None:
    page.goto("/jobs")
    expect(page.get_by_role("status")).to_contain_text("live")
    uid = demo.run(demo.submit())
    expect(page.get_by_role("link", name=uid)).to_be_visible()


def test_rows_stand_still_under_the_pointer(page: Page, demo: Site) -> None:
    page.goto("/jobs")
    expect(page.get_by_role("status")).to_contain_text("live")
    row = page.locator("[data-index='3']")
    row.hover()
    name = row.get_by_role("link").first.inner_text()
    uid = demo.run(demo.submit())
    apply = page.get_by_role("button", name="apply")
    expect(apply).to_be_visible()
    assert row.get_by_role("link").first.inner_text() == name
    apply.click()
    expect(page.get_by_role("link", name=uid)).to_be_visible()


def test_paused_nothing_changes(page: Page, demo: Site) -> None:
    page.goto("/jobs")
    expect(page.get_by_role("status")).to_contain_text("live")
    page.get_by_role("button", name="Pause").click()
    uid = demo.run(demo.submit())
    expect(page.get_by_text("there is news")).to_be_visible()
    expect(page.get_by_role("link", name=uid)).to_have_count(0)
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("link", name=uid)).to_be_visible()

"""Every screen, in light and dark: it shows itself, axe finds nothing that counts, and the page is small."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.ui.browser import opened
from tests.ui.conftest import PICTURES
from tests.ui.site import Site

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
SCREENS = {
    "overview": "/",
    "queues": "/queues",
    "jobs": "/jobs",
    "topology": "/topology",
    "cycles": "/cycles",
    "fair-share": "/fair-share",
    "edit": "/edit",
    "events": "/events",
    "audit": "/audit",
    "me": "/me",
}
MOST_NODES = 5000


def settled(page: Page, path: str) -> None:
    """Go there and wait until no part of the screen waits for its answer."""
    page.goto(path)
    page.wait_for_selector("main h1, main h2", state="attached")
    expect(page.locator("[aria-busy=true], .skeleton")).to_have_count(0, timeout=15_000)


def faults(page: Page) -> list[str]:
    """What axe finds serious or critical."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_shows_itself(chromium: Browser, demo: Site, name: str, colours: str) -> None:
    with opened(chromium, demo.url, color_scheme=colours) as page:
        settled(page, SCREENS[name])
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"demo-{name}-{colours}.png", full_page=True)
        assert page.evaluate("document.querySelectorAll('*').length") < MOST_NODES
        assert faults(page) == []

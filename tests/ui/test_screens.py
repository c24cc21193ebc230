"""Every screen, in light and dark: it shows itself, axe finds nothing that counts, and the page is small."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.ui.browser import opened
from tests.ui.looks import faults, picture, settled
from tests.ui.site import Site

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


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_shows_itself(chromium: Browser, demo: Site, name: str, colours: str) -> None:
    with opened(chromium, demo.url, color_scheme=colours) as page:
        settled(page, SCREENS[name])
        picture(page, f"demo-{name}-{colours}")
        assert page.evaluate("document.querySelectorAll('*').length") < MOST_NODES
        assert faults(page) == []

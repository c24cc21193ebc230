"""Every screen: it shows itself, the page is small, axe finds nothing that counts in light and dark, and a
narrow window loses nothing.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.ui.looks import in_both_colours, settled, whole_when_narrow

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


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_shows_itself(page: Page, name: str) -> None:
    settled(page, SCREENS[name])
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_NODES
    assert in_both_colours(page, name) == []
    whole_when_narrow(page)

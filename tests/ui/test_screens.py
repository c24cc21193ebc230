"""Every screen: it shows itself, the page is small, axe finds nothing that counts in light and dark, and a
narrow window loses nothing.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

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


def test_on_a_telephone_the_header_has_two_lines_and_an_event_says_what_happened(page: Page) -> None:
    """The screen that one is on is in sight in its line."""
    page.set_viewport_size({"width": 390, "height": 640})
    settled(page, "/events")
    expect(page.get_by_role("navigation").get_by_role("link", name="Events")).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("columnheader", name="what happened")).to_be_in_viewport(ratio=0.5)
    assert page.locator(".bar-top").evaluate("header => header.offsetHeight") < 80

"""The site under test: a full demo, in a browser. Screenshots of every screen are kept in `.cache/ui`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from bench.load import Size
from tests.ui import browser
from tests.ui.browser import opened
from tests.ui.jobs import Waiting, submit
from tests.ui.site import Site, site

DEMO = Size(nodes=160, queues=12, jobs=160)
PICTURES = Path(__file__).parents[2] / ".cache/ui"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a file pays for the demo, too, and all wait for a browser that is slow under load."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def demo() -> Iterator[Site]:
    """160 nodes that are full, twelve queues, and jobs that wait for all kinds of reasons."""
    with site(DEMO, seed=7) as made:
        yield made


@pytest.fixture(scope="session")
def waiting(demo: Site) -> Waiting:
    """Three jobs that wait, each for another reason."""
    return submit(demo)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The Chromium of this machine. Anew for each file: while its driver runs, no test of asyncio can."""
    with browser.chromium() as launched:
        yield launched


@pytest.fixture
def page(chromium: Browser, demo: Site) -> Iterator[Page]:
    """A page of the demo, 1440 pixels wide, in light colours."""
    with opened(chromium, demo.url) as made:
        yield made

"""A real browser on a running Queuer. A page that logs an error, or asks another server, fails its test.

Screenshots of every screen are kept in `.cache/ui`, to be looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from bench.load import Size
from tests.ui.jobs import Waiting, submit
from tests.ui.site import Site, site

DEMO = Size(nodes=160, queues=12, jobs=160)
PICTURES = Path(__file__).parents[2] / ".cache/ui"
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def demo() -> Iterator[Site]:
    """160 nodes that are full, twelve queues, and jobs that wait for all kinds of reasons."""
    with site(DEMO, seed=7) as made:
        yield made


@pytest.fixture(scope="session")
def waiting(demo: Site) -> Waiting:
    """Three jobs that wait, each for another reason."""
    return submit(demo)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The Chromium of this machine."""
    program = os.environ.get("QUEUER_CHROMIUM") or shutil.which("chromium")
    if program is None:
        pytest.fail("no Chromium is installed: make browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser, demo: Site) -> Iterator[Page]:
    """A page of the demo, 1440 pixels wide, in light colours."""
    with opened(chromium, demo.url) as made:
        yield made


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page of its own, whose errors and requests elsewhere fail the test. `options`: of its context."""
    wide = {"width": 1440, "height": 900}
    context = browser.new_context(**{"base_url": url, "viewport": wide, "color_scheme": "light", **options})
    page = context.new_page()
    wrong: list[str] = []

    def told(message: ConsoleMessage) -> None:
        # A request that the test itself makes fail is logged by the browser, too.
        if message.type == "error" and "Failed to load resource" not in message.text:
            wrong.append(message.text)

    def asked(request: Request) -> None:
        if not request.url.startswith((url, "data:", "blob:")):
            wrong.append(f"asked {request.url}")

    page.on("console", told)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", asked)
    yield page
    context.close()
    assert wrong == []

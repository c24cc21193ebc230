"""A real browser, for whoever looks at a running Queuer: the tests here, those of the story, the pictures.

A page that logs an error, or asks another server, fails its test.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from queuer.api.http.problems import KINDS
from queuer.domain.errors import NotFound

_PATIENCE = 60_000.0
"""Milliseconds: a loaded machine is slow, and a demo goes on beside the test."""
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

expect.set_options(timeout=_PATIENCE)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium of this machine. Raises NotFound without one."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_program(), args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def large_text(url: str, *, size: int, **options: Any) -> Iterator[Page]:
    """A page in a browser whose reader has set its text to `size` pixels; 16 is usual. Not beside `chromium`."""
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as profile:
        preferences = Path(profile, "Default/Preferences")
        preferences.parent.mkdir()
        preferences.write_text(json.dumps({"webkit": {"webprefs": {"default_font_size": size}}}))
        context = driver.chromium.launch_persistent_context(
            profile, executable_path=_program(), args=_FLAGS, base_url=url, **options
        )
        yield context.pages[0]
        context.close()


def _program() -> str:
    program = os.environ.get("QUEUER_CHROMIUM") or shutil.which("chromium")
    if program is None:
        raise NotFound("no Chromium is installed", hint="make browser")
    return program


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page of its own, whose errors and requests elsewhere fail the test. `options`: of its context."""
    wide = {"width": 1440, "height": 900}
    context = browser.new_context(**{"base_url": url, "viewport": wide, "color_scheme": "light", **options})
    context.set_default_timeout(_PATIENCE)
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
    page.unroute_all(behavior="ignoreErrors")  # the page goes on asking while it closes
    context.close()
    assert wrong == []


def failing(page: Page, where: str, code: str, detail: str) -> None:
    """Have the server answer with this problem there, until `restored(page)`."""
    kind = KINDS[code]
    problem = {
        "title": kind.title,
        "status": kind.status,
        "code": code,
        "detail": detail,
        "requestId": "r-4711",
    }
    page.route(where, lambda route: route.fulfill(status=kind.status, json=problem))


def restored(page: Page) -> None:
    """Have the server answer for itself again. An answer under way is given first: its request would be gone."""
    page.unroute_all(behavior="wait")

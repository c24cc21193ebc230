"""`make docs` builds a site that is complete, reads as on GitHub, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.ui import browser

ROOT = Path(__file__).resolve().parents[2]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; a broken link, a lost heading or a page without a place in the navigation fails it."""
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", f"--site-dir={folder}"],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture
def served(built: Path) -> Iterator[str]:
    """Its address on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever, name="site")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_page_is_built_and_its_lists_and_tables_are_some(built: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert pages == {path.relative_to(built) for path in built.rglob("*.html")} - {Path("404.html")}
    for page in pages:
        for text in re.findall(r"<p>(.*?)</p>", (built / page).read_text(), re.DOTALL):
            plain = re.sub(r"<code>.*?</code>", "", text, flags=re.DOTALL)
            assert not re.search(r"^\s*([-*|]|\d+\.) ", plain, re.MULTILINE), f"{page}: {text}"


def test_a_reader_searches_without_the_internet(served: str) -> None:
    with browser.chromium() as chromium, browser.opened(chromium, served) as page:
        page.goto("/index.html")
        page.get_by_role("textbox", name="Search").press_sequentially("TopologyPlacementFailed")
        found = page.locator(".md-search-result__link").filter(has_text="Reasons").first
        expect(found).to_be_visible(timeout=30_000)
        found.click()
        expect(page.get_by_role("heading", name="TopologyPlacementFailed")).to_be_visible()

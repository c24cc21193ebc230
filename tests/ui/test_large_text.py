"""Whoever has set larger text in the browser gets it: all that is written is twice as large, and nothing is cut off."""

from __future__ import annotations

import pytest

from tests.e2e.support import wait_until
from tests.ui.browser import large_text
from tests.ui.looks import cut_off, picture, settled
from tests.ui.site import Site

# The least size of all text in the main part, and in the header.
_SIZES = """() => ['main', 'header'].map((part) => Math.min(...[...document.querySelectorAll(`${part} *`)]
  .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && e.getClientRects().length)
  .map((e) => parseFloat(getComputedStyle(e).fontSize))))"""
_OVERLAPS = """() => [...document.querySelectorAll('main [data-index]')].filter((row) => {
  const next = row.nextElementSibling;
  return next && next.getBoundingClientRect().top < row.getBoundingClientRect().bottom - 1;
}).length"""


@pytest.mark.parametrize("path", ["/", "/queues", "/jobs", "/topology", "/events"])
def test_text_follows_the_size_that_the_browser_is_set_to(demo: Site, path: str) -> None:
    least: list[list[float]] = []
    for size in (16, 32):
        with large_text(demo.url, size=size, viewport={"width": 1440, "height": 900}) as page:
            settled(page, path)
            least.append(page.evaluate(_SIZES))
            wait_until(
                lambda: not cut_off(page), timeout=10, describe=lambda: f"all is seen: {cut_off(page)}"
            )
            assert page.evaluate(_OVERLAPS) == 0
            picture(page, f"text-{size}-{path.strip('/') or 'overview'}")
    usual, large = least
    assert large == [2 * each for each in usual]

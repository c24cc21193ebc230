"""Rules that hold for every page, asked of the browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.e2e.support import wait_until
from tests.ui.conftest import PICTURES

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
# 720: a window of 1440 at twice its size; 390: a telephone.
WIDTHS = (1024, 720, 390)
# Targets of 24 pixels (WCAG 2.2, 2.5.8) are no rule of axe's unless it is asked for.
_RULES = "{resultTypes: ['violations'], rules: {'target-size': {enabled: true}}}"

_CUT = """() => {
  const hidden = (style) => style.overflowX === 'hidden' || style.overflowX === 'clip';
  const scrolls = (element) => {
    for (let at = element; at; at = at.parentElement) {
      if (['auto', 'scroll'].includes(getComputedStyle(at).overflowX)) return true;
    }
    return false;
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    if (element.closest('svg, .visually-hidden, .skip, noscript')) continue;
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const style = getComputedStyle(element);
    const beyond = (box.right > innerWidth + 1 || box.left < -1) && !scrolls(element);
    const within = hidden(style) && style.textOverflow !== 'ellipsis' && element.scrollWidth > element.clientWidth + 1;
    if (beyond || within) found.push(element.outerHTML.slice(0, 120));
  }
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) found.unshift(`the page is ${page.scrollWidth} wide, not ${innerWidth}`);
  return found;
}"""


def settled(page: Page, path: str) -> None:
    """Go there and wait until no part of the screen waits for its answer."""
    page.goto(path)
    page.wait_for_selector("main h1, main h2", state="attached")
    expect(page.locator("[aria-busy=true], .skeleton")).to_have_count(0)


def picture(page: Page, name: str) -> None:
    """Keep a picture of the whole page, to be looked at."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def faults(page: Page) -> list[str]:
    """Axe's serious or critical findings."""
    page.evaluate(AXE.read_text())
    found = page.evaluate(f"axe.run(document, {_RULES})")
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]}"
        for each in found["violations"]
        for node in each["nodes"][:3]
        if each["impact"] in ("serious", "critical")
    ]


def cut_off(page: Page) -> list[str]:
    """Elements outside the window, or clipped, that no scrolling brings into sight."""
    found: list[str] = page.evaluate(_CUT)
    return found


def in_both_colours(page: Page, name: str) -> list[str]:
    """Axe's findings in light and in dark; a picture of each is kept."""
    found: list[str] = []
    for colours in ("light", "dark"):
        page.emulate_media(color_scheme=colours)
        picture(page, f"demo-{name}-{colours}")
        found += faults(page)
    return found


def whole_when_narrow(page: Page) -> None:
    """Nothing is cut off in a narrow window, once charts and frames have followed its size; in the narrowest axe finds
    nothing.
    """
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 640})
        wait_until(lambda: not cut_off(page), timeout=10, describe=lambda: f"all is seen: {cut_off(page)}")
    wait_until(
        lambda: not faults(page), timeout=10, describe=lambda: "axe finds nothing: " + "\n".join(faults(page))
    )

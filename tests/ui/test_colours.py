"""People who see colours differently read the same, and colour never says a thing alone.

The browser shows the page as people with each kind of colour blindness see it. Distances are CIE76 in Lab: 10
is plainly another colour, 2.3 is just noticeable.
"""

from __future__ import annotations

import base64
import itertools
import math

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.ui.browser import opened
from tests.ui.looks import picture, settled
from tests.ui.site import Site

MARKS = ("own", "borrowed", "lent", "pending", "track")
LEAST = 10.0
Lab = tuple[float, float, float]

_SWATCHES = """names => names.forEach((name, place) => {
  const swatch = document.createElement('i');
  Object.assign(swatch.style, {position: 'fixed', zIndex: 99, top: 0, left: `${20 * place}px`,
    width: '20px', height: '20px', background: `var(--${name})`});
  document.body.append(swatch);
})"""
_READ = """async ([image, count]) => {
  const picture = await createImageBitmap(await (await fetch(`data:image/png;base64,${image}`)).blob());
  const canvas = new OffscreenCanvas(picture.width, picture.height).getContext('2d');
  canvas.drawImage(picture, 0, 0);
  return [...Array(count).keys()].map(place => [...canvas.getImageData(20 * place + 10, 10, 1, 1).data.slice(0, 3)]);
}"""


def lab(rgb: list[int]) -> Lab:
    """CIE Lab of an sRGB colour, by the white of D65."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (each / 255 for each in rgb)
    ]
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    x, y, z = (sum(part * c for part, c in zip(row, linear, strict=True)) for row in rows)
    f = [
        t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
        for t in (x / 0.95047, y, z / 1.08883)
    ]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def apart(one: Lab, other: Lab) -> float:
    """CIE76 distance."""
    return math.dist(one, other)


def seen(page: Page, reader: Page, names: tuple[str, ...]) -> dict[str, Lab]:
    """The colours as they are on the screen. `reader`: a page without a policy, that may read a picture."""
    page.evaluate(_SWATCHES, list(names))
    taken = page.screenshot(clip={"x": 0, "y": 0, "width": 20 * len(names), "height": 20})
    found = reader.evaluate(_READ, [base64.b64encode(taken).decode(), len(names)])
    return {name: lab(rgb) for name, rgb in zip(names, found, strict=True)}


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("sight", ["none", "protanopia", "deuteranopia", "tritanopia"])
def test_marks_of_quota_are_told_apart(chromium: Browser, demo: Site, sight: str, colours: str) -> None:
    reader = chromium.new_page()
    with opened(chromium, demo.url, color_scheme=colours) as page:
        settled(page, "/queues")
        session = page.context.new_cdp_session(page)
        session.send("Emulation.setEmulatedVisionDeficiency", {"type": sight})
        picture(page, f"demo-queues-{sight}-{colours}")
        found = seen(page, reader, MARKS)
    reader.close()
    near = {
        f"{one} and {other}": round(apart(found[one], found[other]), 1)
        for one, other in itertools.combinations(MARKS, 2)
        if apart(found[one], found[other]) < LEAST
    }
    assert near == {}


def test_without_colour_marks_differ_by_their_texture(page: Page) -> None:
    settled(page, "/queues")
    bars = page.get_by_role("treegrid").locator("svg.bar")
    hatched = bars.locator("rect[fill^='url'][fill$='h)']")
    assert hatched.count() > 0
    ids = {str(rect.get_attribute("fill"))[4:-1] for rect in bars.locator("rect[fill^='url']").all()}
    assert all(page.locator(f"[id='{name[1:]}'] > *").count() > 0 for name in ids)
    ghost = page.evaluate(
        """() => { const r = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
        r.setAttribute('class', 'bar-pending'); document.querySelector('svg.bar').append(r);
        const s = getComputedStyle(r); return [s.fill, s.strokeDasharray]; }"""
    )
    assert ghost[0] == "none"
    assert ghost[1] != "none"


def test_states_are_words_before_they_are_colours(page: Page) -> None:
    settled(page, "/jobs")
    chips = page.get_by_role("grid", name="Jobs").locator(".chip")
    expect(chips.first).to_be_visible()
    words = {text.strip() for text in chips.all_inner_texts()}
    assert words
    assert all(any(letter.isalpha() for letter in word) for word in words)

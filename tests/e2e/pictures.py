"""`make pictures`: the two pictures of the README, taken while the story of the demo is played on a cluster of its own.

Both show the moment at which the gang waits: the Overview as the admin sees it, and the gang's screen as alice does.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Page, expect

from queuer.local.demo import ALICE, Beat, story
from queuer.local.fleet import Fleet
from queuer.local.manifests import GANG
from queuer.local.stage import Stage
from tests.e2e.story import Screens, whole
from tests.ui.browser import chromium

FOLDER = Path(__file__).parents[2] / "docs/pictures"
SIZE = {"width": 1200, "height": 1200}
BELOW = 12


def main() -> None:
    """Play until the gang waits, and write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    with (
        whole(Fleet()) as cluster,
        closing(Stage(cluster, out=sys.stdout)) as stage,
        chromium() as browser,
        Screens.opened(stage, browser, viewport=SIZE) as screens,
    ):
        next(beat for beat in story(stage) if beat is Beat.WAITS)
        screens.admin.goto("/")
        expect(screens.admin.get_by_role("region", name="Attention")).to_contain_text("starved")
        save(screens.admin, "overview", last="Where gpu goes")
        screens.alice.goto(f"/jobs/{(stage.workload(ALICE, GANG) or {})['uid']}")
        save(screens.alice, "job", last="Timeline")


def save(page: Page, name: str, *, last: str) -> None:
    """The page from its top to the panel of that name."""
    expect(page.locator("[aria-busy=true], .skeleton")).to_have_count(0)
    box = page.get_by_role("region", name=last).bounding_box()
    assert box is not None
    clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": box["y"] + box["height"] + BELOW}
    page.screenshot(path=FOLDER / f"{name}.png", clip=clip)  # type: ignore[arg-type]  # a TypedDict


if __name__ == "__main__":
    main()

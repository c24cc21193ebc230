"""The story of `make demo` on a whole local cluster, played twice: read as it is told, then followed in a browser."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from queuer.domain.errors import QueuerError
from queuer.local import stack
from queuer.local.cluster import API_PART, CONTROLLER_PART, Cluster
from queuer.local.demo import play, story
from queuer.local.fleet import Fleet
from queuer.local.progress import Reporter
from queuer.local.stage import Stage
from tests.e2e.story import Screens
from tests.ui.browser import chromium

TITLES = 8


@pytest.fixture(scope="module")
def whole() -> Iterator[Cluster]:
    """A small cluster with all its parts: 4 racks of 8 nodes of 8 GPUs."""
    directory = Path(tempfile.mkdtemp(prefix="queuer-story-"))
    directory.chmod(0o755)  # the account of PostgreSQL must enter it
    fleet = Fleet(nodes=32, blocks=2, racks=4, gpus=8)
    try:
        yield stack.up(stack.Options(dir=directory / "local", fleet=fleet), reporter=Reporter())
    finally:
        if (directory / "local" / "state.json").exists():
            stack.reset(Cluster.load(directory / "local"))
        shutil.rmtree(directory)


def told(text: str, whole: Cluster) -> None:
    """The gang waits with numbers, one younger and smaller job leaves for it, and it lands in one rack."""
    assert text.count("\n── ") == TITLES
    assert "WAIT  TopologyPlacementFailed" in text
    assert text.count("evicted: eval-") == 1
    assert "evicted: train-" not in text
    assert text.count("  8 pods") == 1
    assert "resnet-ft   Succeeded" in text
    assert "attempt       2" in text
    assert whole.queuer_url in text


@pytest.mark.timeout(180)
def test_the_story_plays_to_its_end(whole: Cluster) -> None:
    said = io.StringIO()
    play(whole, out=said)
    told(said.getvalue(), whole)


@pytest.mark.timeout(180)
def test_the_screens_show_the_story_when_it_is_played_again(whole: Cluster) -> None:
    said = io.StringIO()
    with (
        closing(Stage(whole, out=said)) as stage,
        chromium() as browser,
        Screens.opened(stage, browser) as screens,
    ):
        for beat in story(stage):
            screens.follow(beat)
    told(said.getvalue(), whole)


@pytest.mark.timeout(60)
def test_it_is_said_which_part_does_not_run(whole: Cluster) -> None:
    """The last one here: it stops them."""
    whole.stop([CONTROLLER_PART])
    with pytest.raises(QueuerError, match=r"the controller of .* does not run"):
        play(whole, out=io.StringIO())
    whole.start([CONTROLLER_PART])
    whole.stop([API_PART])
    with pytest.raises(QueuerError, match=r"the api of .* does not run"):
        play(whole, out=io.StringIO())

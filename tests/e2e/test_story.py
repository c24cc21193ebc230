"""The story of `make demo` on a whole local cluster: read as it is told, and followed in a browser."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing

import pytest

from queuer.domain.errors import QueuerError
from queuer.local.cluster import API_PART, CONTROLLER_PART, Cluster
from queuer.local.demo import ALICE, play, story
from queuer.local.fleet import Fleet
from queuer.local.manifests import Sizes, gang
from queuer.local.stage import Stage
from tests.e2e.story import Screens, whole
from tests.ui.browser import chromium

TITLES = 8
"""Seven beats and the end."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A small one: 4 racks of 8 nodes of 8 GPUs."""
    with whole(Fleet(nodes=32, blocks=2, racks=4, gpus=8)) as made:
        yield made


def told(text: str, cluster: Cluster) -> None:
    """The gang waits with numbers, one younger and smaller job leaves for it, and it lands in one rack."""
    assert text.count("\n── ") == TITLES
    assert "WAIT  TopologyPlacementFailed" in text
    assert text.count("evicted: eval-") == 1
    assert "evicted: train-" not in text
    assert text.count("  8 pods") == 1
    assert "resnet-ft   Succeeded" in text
    assert "attempt       2" in text
    assert cluster.queuer_url in text


@pytest.mark.timeout(180)
def test_the_story_plays_to_its_end_and_the_screens_show_it(cluster: Cluster) -> None:
    """A play that was broken off has left its gang, which goes first."""
    said = io.StringIO()
    with (
        closing(Stage(cluster, out=said)) as stage,
        chromium() as browser,
        Screens.opened(stage, browser) as screens,
    ):
        sizes = Sizes.of(stage.nodes_by_rack(), stage.gpus_per_node())
        stage.create(ALICE, [gang(sizes)], file="gang.yaml")
        for beat in story(stage):
            screens.follow(beat)
    told(said.getvalue(), cluster)


@pytest.mark.timeout(180)
def test_it_is_said_which_part_does_not_run(cluster: Cluster) -> None:
    """The last one here: it stops them."""
    cluster.stop([CONTROLLER_PART])
    with pytest.raises(QueuerError, match=r"the controller of .* does not run"):
        play(cluster, out=io.StringIO())
    cluster.start([CONTROLLER_PART])
    cluster.stop([API_PART])
    with pytest.raises(QueuerError, match=r"the api of .* does not run"):
        play(cluster, out=io.StringIO())

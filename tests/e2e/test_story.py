"""The story of `make demo` on a whole local cluster, played twice: each beat reaches what it promises."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuer.domain.errors import QueuerError
from queuer.local import stack
from queuer.local.cluster import API_PART, CONTROLLER_PART, Cluster
from queuer.local.demo import play
from queuer.local.fleet import Fleet
from queuer.local.progress import Reporter

BEATS = 7


@pytest.fixture
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


@pytest.mark.timeout(300)
def test_the_story_plays_to_its_end_again_and_again(whole: Cluster) -> None:
    for _ in range(2):
        said = io.StringIO()
        play(whole, out=said)
        text = said.getvalue()
        assert text.count("\n── ") == BEATS + 1
        # The gang waits with numbers, one younger and smaller job leaves for it, and it lands in one rack.
        assert "WAIT  TopologyPlacementFailed" in text
        assert text.count("evicted: eval-") == 1
        assert "evicted: train-" not in text
        assert text.count("  8 pods") == 1
        assert "resnet-ft   Succeeded" in text
        assert "attempt       2" in text
        assert whole.queuer_url in text

    whole.stop([CONTROLLER_PART])
    with pytest.raises(QueuerError, match=r"the controller of .* does not run"):
        play(whole, out=io.StringIO())
    whole.start([CONTROLLER_PART])
    whole.stop([API_PART])
    with pytest.raises(QueuerError, match=r"the api of .* does not run"):
        play(whole, out=io.StringIO())

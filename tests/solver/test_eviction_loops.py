"""Nobody is evicted again and again, and no two gangs evict each other, however long a cluster is played on."""

from __future__ import annotations

import pytest

from tests.solver.cycles import Evicted
from tests.solver.loops import killed_at_once, loops, played


@pytest.mark.parametrize("seed", range(6))
def test_no_loops(seed: int) -> None:
    """A few of the worlds that `make loops` plays."""
    assert list(loops(played(seed))) == []


@pytest.mark.parametrize("seed", [16, 96, 170])
def test_no_start_ends_in_the_same_instant(seed: int) -> None:
    """Each of these worlds had one before starts were lifted."""
    assert killed_at_once(seed) == 0


def test_the_worlds_have_evictions() -> None:
    """Else nothing is shown."""
    assert sum(len(played(seed)) for seed in range(6)) > 2


def test_loops_are_seen() -> None:
    found = [Evicted(at=at, uid="a", beneficiary="b") for at in (0.0, 30.0, 3_599.0)]
    assert list(loops(found)) == ["a is evicted 3 times in an hour"]
    found = [Evicted(at=at, uid="a", beneficiary="b") for at in (0.0, 30.0, 3_600.0)]
    assert list(loops(found)) == []
    found = [Evicted(at=0.0, uid="a", beneficiary="b"), Evicted(at=60.0, uid="b", beneficiary="a")]
    assert list(loops(found)) == ["a and b evict each other"]

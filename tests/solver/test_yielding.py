"""Who keeps off whose hosts in the next attempt."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from queuer.domain.queue import Policy, Preempt
from queuer.domain.workload import Workload
from queuer.solver import yielding as module
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.greedy import Greedy
from queuer.solver.outcome import Chosen
from queuer.solver.pins import Pinner
from queuer.solver.problem import Admitted
from queuer.solver.yielding import Yielding, yielding
from tests.solver.make import gang, node, pod_set, queue, running, snapshot

HERE = frozenset({"n0"})


def asks(uid: str, **more: Any) -> Workload:
    return gang(uid, pod_set(1, 2), submitted=float(ord(uid)), **more)


def told(in_its_way: str, *jobs: Workload, admitted: Sequence[Admitted] = ()) -> tuple[Yielding, int]:
    """Who yields to `g`, which comes first on the only node and could not land beside these, and how often it was
    looked.
    """
    tree = [queue("root"), queue("root.a", policy=Policy(preempt=Preempt.LOWER_PRIORITY))]
    snap = snapshot([node("n0")], tree, admitted=admitted, pending=jobs)
    greedy, looks = Greedy(Board(Arrays.of(snap), now=0.0)), list[int]()
    for _, one in sorted(greedy.board.arrays.offers.gangs.items()):
        greedy.turn(one)
    assert greedy.chosen.keys() == {job.uid for job in jobs}

    def late() -> Sequence[Chosen]:
        looks.append(len(greedy.chosen))
        return [greedy.chosen["g"]] if greedy.chosen.keys() & set(in_its_way) else []

    before = dict(greedy.chosen)
    found = yielding(greedy, [before["g"]], Pinner(greedy.board, {}), late)
    assert list(greedy.chosen.items()) == list(before.items())
    return found, len(looks)


@pytest.mark.parametrize(
    ("uids", "few", "in_its_way", "away", "later", "looks"),
    [
        ("ghij", 4, "j", "j", "", 4),
        ("ghij", 4, "hj", "hj", "i", 4),
        ("ghij", 4, "g", "hij", "", 1),
        ("ghij", 3, "j", "hij", "", 0),
        ("gh", 4, "h", "h", "", 0),
    ],
)
def test_only_among_few_it_is_looked_who_keeps_a_gang_from_landing(
    uids: str, few: int, in_its_way: str, away: str, later: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look pins all of them anew, so that among many there is none, and whoever was settled later yields; so does
    everybody where nobody of them is in its way. Those after the first that yields might instead.
    """
    monkeypatch.setattr(module, "FEW", few)
    found = Yielding(off=dict.fromkeys(away, HERE), instead={"g": HERE}, later=dict.fromkeys(later, HERE))
    assert told(in_its_way, *map(asks, uids)) == (found, looks)


def test_who_lies_in_room_that_another_leaves_does_not_yield() -> None:
    """`h` evicts, and `i` has a place beside it in what its victim leaves; without `h` it has another turn."""
    jobs = asks("g"), asks("h", priority=1), asks("i")
    victim = running(gang("v", pod_set(1, 6), priority=0), {"n0": 1})
    found, _ = told("h", *jobs, admitted=[victim])
    assert found.off == {"h": HERE}


@pytest.mark.parametrize(("alone", "off"), [(False, {"n1"}), (True, {"n0", "n1"})])
def test_who_is_the_last_keeps_off_itself(alone: bool, off: set[str]) -> None:
    """Where two of its pod sets meet, and if it could land there without others, where those lie."""
    last = gang("g", *(pod_set(1, 1, name=name) for name in ("one", "two", "three")))
    snap = snapshot([node(f"n{n}") for n in range(3)], [queue("root.a")], pending=[asks("a"), last])
    greedy = Greedy(Board(Arrays.of(snap), now=0.0))
    places = {"a": {"main": {0: 1}}, "g": {"one": {0: 1}, "two": {1: 1}, "three": {1: 1}}}
    for uid, spreads in places.items():
        one = greedy.board.arrays.offers.gangs[uid]
        variant, charge = one.shape.smallest[0]
        greedy.take(Chosen(gang=one, variant=variant, charge=charge, spreads=spreads))
    pinner = cast("Pinner", SimpleNamespace(lands_alone=lambda _: alone))
    found = yielding(greedy, [greedy.chosen["g"]], pinner, list)
    assert found == Yielding(off={"g": frozenset(off)})

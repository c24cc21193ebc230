"""What the exact solver makes of gangs that are all settled: it prefers what 3.4 prefers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.queue import Policy, Preempt
from queuer.solver.contested import Arrangement, Clashes, Settled
from queuer.solver.cpsat import CpSat, needed
from queuer.solver.problem import EvictionRule, Snapshot
from tests.solver.asking import judged, place, settled
from tests.solver.make import gang, node, pod_set, queue, running, snapshot
from tests.solver.plans import NOW


def improve(snap: Snapshot, before: tuple[Settled, ...], *, clashes: Clashes = lambda _: ()) -> object:
    """What the solver makes of what is settled."""
    return CpSat().improve(
        snapshot=snap,
        now=NOW,
        seed=1,
        settled=before,
        standing=(),
        budget=5.0,
        clashes=clashes,
    )


def test_improve_narrows_and_packs() -> None:
    """Spread over two racks though one holds both; the half-full host is to be filled before a whole one."""
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    busy = running(gang("busy", pod_set(1, 4)), {"n0": 1})
    jobs = [
        replace(gang("pair", pod_set(2, 8)), preferred="rack"),
        gang("single", pod_set(1, 4), submitted=1.0),
    ]
    snap = snapshot(nodes, [queue("root.a")], admitted=[busy], pending=jobs)
    before = (
        settled(snap, "pair", place({"n1": 1, "n2": 1})),
        settled(snap, "single", place({"n3": 1})),
    )
    found = improve(snap, before)
    assert isinstance(found, Arrangement)
    assert found.proven
    assert dict(found.assignments["pair"][0].nodes) == {"n2": 1, "n3": 1}
    assert dict(found.assignments["single"][0].nodes) == {"n0": 1}
    assert judged(snap, found) == ()


def test_improve_takes_cheaper_victims_together() -> None:
    """Each gang alone took the youngest; together, one old pair and one young pair are exchanged."""
    root = queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY))
    ages = [50.0, 900.0, 60.0, 70.0]
    low = [running(gang(f"v{i}", pod_set(1, 8)), {f"n{i}": 1}, since=-age) for i, age in enumerate(ages)]
    jobs = [gang(f"g{i}", pod_set(1, 8), priority=5, submitted=float(i)) for i in range(2)]
    snap = snapshot([node(f"n{i}") for i in range(4)], [root, queue("root.a")], admitted=low, pending=jobs)
    before = (
        settled(snap, "g0", place({"n1": 1}), victims=[("v1", EvictionRule.PREEMPT)]),
        settled(snap, "g1", place({"n3": 1}), victims=[("v3", EvictionRule.PREEMPT)]),
    )
    found = improve(snap, before)
    assert isinstance(found, Arrangement)
    assert {e.uid for e in found.evictions} == {"v0", "v2"}
    assert judged(snap, found, bound=["g0", "g1"]) == ()


@pytest.mark.parametrize("ways", [needed.WAYS, 0])
def test_improve_counts_only_what_lands(ways: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheapest victims leave places in which the two could not land, in whatever way they share them. Where not
    all ways are looked at to say for whom victims go, they are not proven to be the cheapest.
    """
    monkeypatch.setattr(needed, "WAYS", ways)
    root = queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY))
    low = [running(gang(f"v{i}", pod_set(1, 8)), {f"n{i}": 1}, since=-10.0 * (i + 1)) for i in range(4)]
    jobs = [gang(f"g{i}", pod_set(1, 8), priority=5, submitted=float(i)) for i in range(2)]
    snap = snapshot([node(f"n{i}") for i in range(4)], [root, queue("root.a")], admitted=low, pending=jobs)
    before = tuple(
        settled(snap, f"g{i}", place({f"n{i + 2}": 1}), victims=[(f"v{i + 2}", EvictionRule.PREEMPT)])
        for i in range(2)
    )

    def clashes(made: Arrangement) -> set[str]:
        hosts = {name for rows in made.assignments.values() for row in rows for name in row.nodes}
        return {"g0", "g1"} if hosts == {"n0", "n1"} else set()

    found = improve(snap, before, clashes=clashes)
    assert isinstance(found, Arrangement)
    assert found.proven == (ways > 0)
    assert {e.uid for e in found.evictions} == {"v0", "v2"}

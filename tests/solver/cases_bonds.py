"""The small worlds of `cases` a minute after a decision that bound somebody: some victims have gone, some are on their
way out, bonds have passed their deadline, others have come, nodes are closed or avoided.

The first decision is the brute force's own, so that these worlds stay what they are when the solver changes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random

from queuer.domain.nodes import Node
from queuer.solver.problem import Admitted, Assignment, Bond, Pending, Snapshot
from tests.solver.cases import MOST_GANGS, NOW, seeded
from tests.solver.cases_leaving import expected, unreserved
from tests.solver.make import snapshot
from tests.solver.oracle import BOUND, Oracle
from tests.solver.oracle_room import Place, Turn, taken

SPREAD = 1_000
"""Seeds of first worlds for each seed, of which the first in which somebody is bound counts."""
LATER = NOW + 60.0
FATES = ("gone", "leaving", "back", "deleted")
"""What came of a victim: it waits again, its pods are still there, it has started anew, or it is no more."""


def standing(seed: int) -> Snapshot:
    """The world of a seed, at `LATER`."""
    rng = Random(seed)
    for number in count(seed * SPREAD):
        oracle = Oracle(seeded(number), NOW)
        oracle.run()
        if BOUND in oracle.flags.values():
            later = _avoiding(rng, unreserved(_carried_out(rng, oracle)))
            return expected(Random(f"expected {seed}"), later, at=LATER)
    raise AssertionError


def _carried_out(rng: Random, oracle: Oracle) -> Snapshot:
    first = oracle.snapshot
    laid = oracle.arranged(oracle.settled, oracle.gone)
    assert laid  # the places of all
    fate = {uid: rng.choices(FATES, (40, 52, 5, 3))[0] for uid in oracle.gone}
    bonds = tuple(_bond(rng, oracle, turn) for turn in oracle.settled if turn.bound)
    owners = {victim: bond.uid for bond in bonds for victim in bond.victims}
    there = [a for a in first.admitted if fate.get(a.workload.uid) not in ("gone", "deleted")]
    there = [replace(a, releasing=fate.get(a.workload.uid) == "leaving") for a in there]
    there += [_started(turn, oracle.place(turn.workload.uid)) for turn in oracle.settled if not turn.bound]
    back = [
        Pending(workload=a.workload, displaced_by=frozenset({owners[a.workload.uid]}))
        for a in first.admitted
        if fate.get(a.workload.uid) == "gone"
    ]
    waiting = [p for p in first.pending if oracle.flags[p.workload.uid] <= BOUND and rng.random() < 0.97]
    return snapshot(
        [replace(s.node, unschedulable=True) if rng.random() < 0.04 else s.node for s in first.nodes],
        first.tree,
        admitted=[one for a in there if (one := _a_minute_later(rng, a)) is not None],
        pending=_line(rng, first, waiting, back),
        flavors=first.flavors,
        topology=first.topology,
        bonds=bonds,
    )


def _started(turn: Turn, place: Place) -> Admitted:
    return Admitted(
        workload=turn.workload,
        counts={p.name: p.count for p in turn.workload.pod_sets},
        flavors=turn.flavors,
        since=NOW,
        bound=taken(turn.workload, place),
    )


def _bond(rng: Random, oracle: Oracle, turn: Turn) -> Bond:
    place = oracle.place(turn.workload.uid)
    labels = {f.name: f.node_labels for f in oracle.snapshot.flavors}
    racks = {s.node.labels.get("rack", "") for s in oracle.snapshot.nodes if _on(place, s.node)}
    rack = {"rack": racks.pop()} if turn.workload.required == "rack" else {}
    rows = (
        Assignment(
            pod_set=name,
            flavor=flavor,
            nodes=place[name],
            selector={**labels.get(flavor, {}), **rack},
            hosts=tuple(sorted(place[name])),
        )
        for name, flavor in turn.flavors.items()
    )
    return Bond(
        uid=turn.workload.uid,
        assignments=tuple(rows),
        victims=tuple(e.uid for e in oracle.evictions(turn)),
        deadline=LATER + rng.choice((240.0, 240.0, 240.0, 240.0, 240.0, 0.0)),
    )


def _on(place: Place, node: Node) -> bool:
    return any(node.name in nodes for nodes in place.values())


def _a_minute_later(rng: Random, admitted: Admitted) -> Admitted | None:
    """Some have ended, of some the pods have not gone yet; None = gone."""
    if admitted.releasing or rng.random() < 0.8:
        return admitted
    return None if rng.random() < 0.6 else replace(admitted, releasing=True)


def _line(rng: Random, first: Snapshot, waiting: list[Pending], back: list[Pending]) -> list[Pending]:
    """Who waits still, who was evicted, and others, who may rank higher."""
    fresh = seeded(rng.randrange(10**6)).pending
    found = [*waiting, *back]
    for number, pending in enumerate(fresh[: rng.randint(0, max(0, MOST_GANGS - len(found)))]):
        workload = replace(
            pending.workload,
            uid=f"m{number}",
            name=f"m{number}",
            queue=rng.choice(first.tree.leaves),
            submitted=NOW + 1 + number,
            priority=pending.workload.priority + rng.randint(0, 1),
        )
        found.append(Pending(workload=workload))
    return found


def _avoiding(rng: Random, snap: Snapshot) -> Snapshot:
    """Some landed nowhere on a node or two, and keep off them."""
    names = [s.node.name for s in snap.nodes]

    def off(pending: Pending) -> Pending:
        if rng.random() > 0.12:
            return pending
        return replace(pending, avoid=frozenset(rng.choices(names, k=2)))

    return replace(snap, pending=tuple(map(off, snap.pending)))

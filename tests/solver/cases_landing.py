"""Small worlds in which some of what runs has still to land, and each way in which it can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from random import Random

from queuer.domain.nodes import flavor_of
from queuer.domain.quantity import add
from queuer.solver.problem import Admitted, Snapshot, Unbound
from tests.solver.cases import NOW, seeded

PODS_TIMES_HOSTS = 24
"""Worlds in which this sum over what has still to land is larger have too many ways."""


def unlanded(seed: int) -> Snapshot | None:
    """A world of `cases` in which more than half of what runs has just started and may land on any node of its flavor;
    None = nothing has, or there are too many ways.
    """
    rng, snap = Random(seed), replace(seeded(seed), bonds=(), reservations=())
    admitted = tuple(_loosened(a, snap) if rng.random() < 0.6 else a for a in snap.admitted)
    ways = sum(u.count * len(u.hosts) for a in admitted for u in a.unbound)
    return _with(snap, admitted) if 0 < ways <= PODS_TIMES_HOSTS else None


def _loosened(admitted: Admitted, snap: Snapshot) -> Admitted:
    if admitted.releasing or len(admitted.workload.pod_sets) > 1:
        return admitted
    (pod_set,) = admitted.workload.pod_sets
    flavor = admitted.flavors[pod_set.name]
    there = {n.node.name for n in snap.nodes if flavor_of(n.node, snap.flavors) == flavor}
    open_ = {n.node.name for n in snap.nodes if n.node.accepts(pod_set.terms)}
    hosts = tuple(sorted(there & open_ | set(admitted.bound)))
    loose = Unbound(pod_set=pod_set.name, count=admitted.counts[pod_set.name], hosts=hosts)
    return replace(admitted, bound={}, unbound=(loose,), since=NOW - 1)


def _with(snap: Snapshot, admitted: tuple[Admitted, ...]) -> Snapshot:
    """The same with these running: nodes are used by their bound pods and by what is not ours."""
    used = {n.node.name: dict(n.used) for n in snap.nodes}
    for times, holding in ((-1, snap.admitted), (1, admitted)):
        for one in holding:
            for name, amounts in one.bound.items():
                used[name] = dict(add(used.get(name, {}), amounts, times=times))
    nodes = tuple(replace(n, used=used[n.node.name]) for n in snap.nodes)
    return replace(snap, admitted=admitted, nodes=nodes)


def landings(snap: Snapshot) -> Iterator[Snapshot]:
    """Each way in which all that has still to land fits."""
    for places in product(*map(_places, snap.admitted)):
        landed = _with(snap, tuple(map(_landed, snap.admitted, places)))
        if all(
            n <= state.node.allocatable.get(r, 0) for state in landed.nodes for r, n in state.used.items()
        ):
            yield landed


def _places(admitted: Admitted) -> list[Mapping[str, int]]:
    """Pods by node, in each way."""
    if not admitted.unbound:
        return [{}]
    (loose,) = admitted.unbound
    ways = product(range(loose.count + 1), repeat=len(loose.hosts))
    return [dict(zip(loose.hosts, way, strict=True)) for way in ways if sum(way) == loose.count]


def _landed(admitted: Admitted, place: Mapping[str, int]) -> Admitted:
    (pod_set, *_) = admitted.workload.pod_sets
    bound = {name: add({}, pod_set.requests, times=count) for name, count in place.items() if count}
    return replace(admitted, bound=bound, unbound=()) if admitted.unbound else admitted

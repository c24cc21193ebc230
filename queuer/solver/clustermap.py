"""The cluster as a stored cycle leaves it: what each domain has, and how many gangs of a shape have room."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from queuer.domain.workload import PodSet, Workload
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.nodes import Mask, Numbers

ANYWHERE = "any"
"""Of all nodes of a flavor, whatever their domains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFor:
    """A waiting job that room of a domain is held for. `start`: of its reservation, in seconds; None = it starts when
    the pods of its victims have left. `amount`: what it takes there, also of what still runs.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    start: float | None
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRow:
    """A domain by its values from the widest level down. Amounts in base units, of one resource. `used`: by pods of
    queues; `outside`: by pods that no queue pays for; `reserved`: on usable nodes, neither, and held for `held_for` or
    for pods that land; `free`: the rest of usable nodes. `whole_nodes`: usable nodes that are free altogether.
    `parent`: the domain one level wider, empty for the widest and for hosts that are in none.
    """

    path: tuple[str, ...]
    parent: tuple[str, ...]
    nodes: int
    cordoned: int
    not_ready: int
    allocatable: int
    used: int
    reserved: int
    free: int
    whole_nodes: int
    held_for: tuple[HeldFor, ...]
    outside: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """Gangs that fit now, each within one domain of the level. `best`: the domain with most room for pods, `best_pods`.

    `places`: all domains with room for a gang, the best first.
    """

    level: str
    domains: int
    gangs: int
    fitting_domains: int
    best: tuple[str, ...]
    best_pods: int
    places: tuple[tuple[str, ...], ...]


class ClusterMap:
    """The map after one cycle; for one thread at a time. Reserved, held and landing amounts are no room."""

    def __init__(self, after: AfterCycle) -> None:
        self._state = after.state_with()  # who waits takes no room, but for those that it is held for
        nodes, landing = self._state.nodes, self._state.landing
        self.levels: tuple[str, ...] = tuple(after.snapshot.topology.levels)
        self.flavors: tuple[str, ...] = tuple(nodes.flavors)
        self.resources: tuple[str, ...] = tuple(nodes.resources)
        there = [row.node for row in nodes.snapshot.nodes]
        self._cordoned: Mask = np.array([node.unschedulable for node in there], dtype=bool)
        self._unready: Mask = np.array([not node.ready for node in there], dtype=bool)
        self._closed: Mask = landing.here | landing.held
        self._room = self._state.room(tuple(self._state.reserved))

    def domains(self, level: str, resource: str) -> list[DomainRow]:
        """All domains of a level, those with most free first. No such level: ValueError."""
        nodes, state = self._state.nodes, self._state
        at, column = self.levels.index(level), nodes.column(resource)
        usable = ~(self._cordoned | self._unready)
        alloc, idle = nodes.alloc[:, column], state.free_now[:, column].clip(min=0)
        free = np.where(usable, self._room.free[:, column].clip(min=0), 0)
        outside = self._outside(resource)
        parts = {
            "nodes": np.ones_like(alloc), "cordoned": self._cordoned, "not_ready": self._unready, "allocatable": alloc,
            "used": (alloc - idle - outside).clip(min=0), "outside": outside, "free": free,
            "reserved": np.where(usable, idle - free, 0), "whole_nodes": usable & (alloc > 0) & (free == alloc),
        }  # fmt: skip
        sums = {name: nodes.sums(at, part).tolist() for name, part in parts.items()}
        held, parents = self._held_for(at, column), self._parents(at)
        rows = [
            DomainRow(
                path=tuple(path),
                parent=parents[n],
                held_for=tuple(held[n]),
                **{name: amounts[n] for name, amounts in sums.items()},
            )
            for n, path in enumerate(nodes.domain_names[at])
        ]
        return sorted(rows, key=lambda row: (-row.free, row.path))

    def _outside(self, resource: str) -> Numbers:
        """By node what is used there beyond what admitted work does (N)."""
        snapshot, index = self._state.snapshot, self._state.nodes.index
        found = np.array([row.used.get(resource, 0) for row in snapshot.nodes], dtype=np.int64)
        for run in snapshot.admitted:
            for node, amounts in run.bound.items():
                if node in index:
                    found[index[node]] -= amounts.get(resource, 0)
        return found.clip(min=0)

    def _held_for(self, at: int, column: int) -> list[list[HeldFor]]:
        """By domain of a level the jobs that room is held for there: reservations by their start, then bound gangs."""
        state, nodes = self._state, self._state.nodes
        found: list[list[HeldFor]] = [[] for _ in nodes.domain_names[at]]
        holds = [
            (row.settled, row.takes, row.start)
            for row in sorted(state.reserved.values(), key=lambda row: row.start)
        ]
        bound = [(row, state.rows(row), None) for row in state.settled.values() if row.bound]
        for settled, takes, start in (*holds, *bound):
            amounts = Counter[int]()
            for node, row in takes.items():
                amounts[int(nodes.domains[at][node])] += int(row[column])
            for domain, amount in amounts.items():
                if domain >= 0 and amount:
                    found[domain].append(_held_for(settled.gang.workload, start=start, amount=amount))
        return found

    def _parents(self, at: int) -> list[tuple[str, ...]]:
        """By domain of a level the one it is in. A host's path is its name alone: its node says where it is."""
        nodes = self._state.nodes
        found: list[tuple[str, ...]] = [()] * len(nodes.domain_names[at])
        if at > 0:
            wider = nodes.domain_names[at - 1]
            for here, above in zip(nodes.domains[at], nodes.domains[at - 1], strict=True):
                if here >= 0 and above >= 0:
                    found[here] = tuple(wider[above])
        return found

    def slots(self, pod_set: PodSet, flavor: str) -> list[SlotRow]:
        """By level, the widest first, and anywhere. Raises KeyError where there is no such flavor."""
        nodes = self._state.nodes
        table = self._room.table(nodes.need(pod_set), nodes.open_to(pod_set, flavor))
        by_node = np.where(self._closed, 0, table.by_node)
        rows = []
        for at, level in enumerate(self.levels):
            names = nodes.domain_names[at]
            sums = nodes.sums(at, by_node).tolist()
            rows.append(_row(level, [tuple(name) for name in names], sums, pod_set.count))
        return [*rows, _row(ANYWHERE, [()], [int(by_node.sum())], pod_set.count)]


def _held_for(workload: Workload, *, start: float | None, amount: int) -> HeldFor:
    return HeldFor(
        uid=workload.uid, kind=workload.kind, namespace=workload.namespace, name=workload.name,
        queue=workload.queue, start=start, amount=amount,
    )  # fmt: skip


def _row(level: str, names: list[tuple[str, ...]], sums: list[int], count: int) -> SlotRow:
    best = max(range(len(sums)), key=sums.__getitem__, default=None)
    fitting = sorted((at for at, n in enumerate(sums) if n >= count), key=lambda at: (-sums[at], names[at]))
    return SlotRow(
        level=level,
        domains=len(sums),
        gangs=sum(n // count for n in sums),
        fitting_domains=len(fitting),
        best=() if best is None else names[best],
        best_pods=0 if best is None else sums[best],
        places=tuple(names[at] for at in fitting),
    )

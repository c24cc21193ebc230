"""The nodes of a snapshot as arrays: what is free where, which nodes a pod set may use, and the domains they
form.

Shapes: N nodes (in snapshot order), R resources. Amounts are int64 base units. The last column stands for every
resource that waiting jobs alone name: no node has it, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuer.domain.nodes import DEFAULT_FLAVOR, Flavor, Node, SchedulingTerms, flavor_of
from queuer.domain.quantity import Resources
from queuer.domain.workload import PodSet
from queuer.solver.faults import faults_of_node, unsound
from queuer.solver.records import NodeState, Snapshot

Matrix = NDArray[np.int64]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]
NodeRows = Numbers | slice
"""Some nodes, or all of them."""
Rows = Mapping[int, Matrix]
"""Amounts by node number (vectors of R)."""
ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """Requests of one pod as columns and amounts above 0; `exclusive`: at most one such pod a node."""

    columns: NDArray[np.intp]
    amounts: Matrix
    exclusive: bool

    def slots(self, free: Matrix) -> Matrix:
        """How many such pods fit on each node (N)."""
        fit = self.stacked(free)
        return np.minimum(fit, 1) if self.exclusive else fit

    def stacked(self, free: Matrix) -> Matrix:
        """Slots by the amounts alone (N)."""
        if not len(self.columns):
            return np.full(len(free), 2**31, dtype=np.int64)
        fit: Matrix | None = None
        for column, amount in zip(self.columns.tolist(), self.amounts.tolist(), strict=True):
            alone: Matrix = np.maximum(free[:, column], 0) // amount
            fit = alone if fit is None else np.minimum(fit, alone, out=fit)
        assert fit is not None
        return fit


class Nodes:
    """Arrays of the nodes of one snapshot. `alloc`, `bound_free`: N x R; `total`: of `alloc` (R); `domains[level]`:
    domain number by node, -1 = none.

    Arrays of one cluster share what did not change between their snapshots.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Raises InvalidInput where a node, flavor or level is there twice, or amounts are no such."""
        names = (
            [s.node.name for s in snapshot.nodes],
            [f.name for f in snapshot.flavors],
            snapshot.topology.keys,
        )
        if any(map(faults_of_node, snapshot.nodes)) or any(len(set(there)) < len(there) for there in names):
            raise unsound(snapshot)
        self.snapshot = snapshot
        self.names = [s.node.name for s in snapshot.nodes]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.resources = sorted(_resources(snapshot))
        self._column = {name: i for i, name in enumerate(self.resources)}
        self.width = len(self.resources) + 1
        self.alloc = self._matrix(s.node.allocatable for s in snapshot.nodes)
        self.total: Matrix = self.alloc.sum(axis=0)
        self.bound_free: Matrix = self.alloc - self._matrix(s.used for s in snapshot.nodes)
        self.domains, self.domain_names = _domains(snapshot)
        self._members: dict[int, tuple[Numbers, Numbers]] = {}
        self.flavors: dict[str, Flavor] = {f.name: f for f in snapshot.flavors} or {
            DEFAULT_FLAVOR: Flavor(name=DEFAULT_FLAVOR)
        }
        of = [flavor_of(s.node, snapshot.flavors) for s in snapshot.nodes]
        self.in_flavor: dict[str, Mask] = {
            f: np.array([x == f for x in of], dtype=bool) for f in self.flavors
        }
        self._masks: dict[object, Mask] = {}
        self._wanted: dict[object, tuple[str, SchedulingTerms, bool]] = {}
        self._needs: dict[object, Need] = {}
        self._forget()

    def _forget(self) -> None:
        """Drop what is known by identity, of records that may be gone; kept with it, no other gets their number."""
        self._rows: dict[int, tuple[Resources, Matrix]] = {}
        self._sets: dict[int, tuple[PodSet, Need, object]] = {}
        self._closed: dict[frozenset[str], Mask] = {}

    def follow(self, snapshot: Snapshot) -> Nodes | None:
        """Those of a later snapshot in which nodes are in other use, or cordoned, tainted and ready otherwise. None
        where more is different: nodes, their labels and sizes, levels, flavors, or the resources used there.
        """
        before = self.snapshot
        if len(snapshot.nodes) != len(before.nodes) or (snapshot.topology, snapshot.flavors) != (
            before.topology,
            before.flavors,
        ):
            return None
        changed = [
            (i, old, new)
            for i, (old, new) in enumerate(zip(before.nodes, snapshot.nodes, strict=True))
            if old is not new and old != new
        ]
        if not all(_same_place(old.node, new.node) for _, old, new in changed):
            return None
        if any(faults_of_node(new) for _, _, new in changed):
            raise unsound(snapshot)
        other = [i for i, old, new in changed if old.node is not new.node and old.node != new.node]
        later = copy(self)
        later.snapshot = snapshot
        later._forget()
        if changed:
            rows = [i for i, _, _ in changed]
            later.bound_free = self.bound_free.copy()
            later.bound_free[rows] = self.alloc[rows] - self._matrix(new.used for _, _, new in changed)
        if other:
            later._masks = {key: later._patched(key, mask, other) for key, mask in self._masks.items()}
        return later

    def _patched(self, key: object, mask: Mask, nodes: Iterable[int]) -> Mask:
        """A mask for these nodes as they are now."""
        patched = mask.copy()
        for i in nodes:
            patched[i] = self._accepts(self.snapshot.nodes[i], *self._wanted[key])
        return patched

    def members(self, level: int, domain: int) -> Numbers:
        """The nodes of a domain, ascending."""
        if level not in self._members:
            numbers = self.domains[level]
            order = np.argsort(numbers, kind="stable")
            starts = np.searchsorted(numbers[order], np.arange(len(self.domain_names[level]) + 1))
            self._members[level] = (order, starts)
        order, starts = self._members[level]
        return order[starts[domain] : starts[domain + 1]]

    def sums(self, level: int, amounts: NDArray[Any]) -> Matrix:
        """Amounts (N) by domain of a level, of the nodes that are in one."""
        numbers = self.domains[level]
        known, total = numbers >= 0, np.zeros(len(self.domain_names[level]), dtype=np.int64)
        np.add.at(total, numbers[known], amounts[known])
        return total

    def accepts_as(self, other: Nodes) -> bool:
        """Whether this has followed the other without any change of the nodes themselves."""
        return self._masks is other._masks

    def knows(self, names: Iterable[str]) -> bool:
        """Whether all these resources have a column of their own."""
        return all(name in self._column for name in names)

    def column(self, resource: str) -> int:
        """Where its amounts stand."""
        return self._column.get(resource, len(self.resources))

    def _matrix(self, rows: Iterable[Resources]) -> Matrix:
        column = self._column
        listed = []
        for amounts in rows:
            row = [0] * self.width
            for name, amount in amounts.items():
                if name in column:
                    row[column[name]] = amount
            listed.append(row)
        return np.array(listed, dtype=np.int64).reshape(len(listed), self.width)

    def capacity(self) -> dict[str, dict[str, int]]:
        """Allocatable amounts by flavor."""
        totals = {f: self.alloc[mask].sum(axis=0).tolist() for f, mask in self.in_flavor.items()}
        return {f: dict(zip(self.resources, row[:-1], strict=True)) for f, row in totals.items()}

    def row(self, amounts: Resources) -> Matrix:
        """An amount by resource as a vector (R), not to be changed."""
        known = self._rows.get(id(amounts))
        if known is None:
            known = self._rows[id(amounts)] = (amounts, self._new_row(amounts))
        return known[1]

    def _new_row(self, amounts: Resources) -> Matrix:
        found = np.zeros(self.width, dtype=np.int64)
        for name, amount in amounts.items():
            found[self.column(name)] = amount
        return found

    def need(self, pod_set: PodSet) -> Need:
        """The requests of one pod of the set."""
        return self._known(pod_set)[1]

    def terms(self, pod_set: PodSet) -> object:
        """Equal for sets that the same nodes accept."""
        return self._known(pod_set)[2]

    def _known(self, pod_set: PodSet) -> tuple[PodSet, Need, object]:
        known = self._sets.get(id(pod_set))
        if known is None:
            terms = pod_set.terms
            key = (tuple(sorted(terms.node_selector.items())), terms.tolerations, terms.affinity)
            known = self._sets[id(pod_set)] = (pod_set, self._need(pod_set), key)
        return known

    def _need(self, pod_set: PodSet) -> Need:
        key = (tuple(sorted(pod_set.requests.items())), pod_set.exclusive_host)
        if key not in self._needs:
            asked = [(self.column(r), n) for r, n in key[0] if n]
            self._needs[key] = Need(
                np.array([c for c, _ in asked], dtype=np.intp),
                np.array([n for _, n in asked], dtype=np.int64),
                pod_set.exclusive_host,
            )
        return self._needs[key]

    def open_to(self, pod_set: PodSet, flavor: str, *, idle: bool = False) -> Mask:
        """Nodes of the flavor that accept the set's pods, the flavor's tolerations added (N).

        `idle`: as if every node were ready and uncordoned.
        """
        key = (flavor, self.terms(pod_set), idle)
        if key not in self._masks:
            terms = pod_set.terms
            wanted = replace(terms, tolerations=(*terms.tolerations, *self.flavors[flavor].tolerations))
            self._wanted[key] = (flavor, wanted, idle)
            accepts = [self._accepts(state, flavor, wanted, idle) for state in self.snapshot.nodes]
            self._masks[key] = np.array(accepts, dtype=bool)
        return self._masks[key]

    def _accepts(self, state: NodeState, flavor: str, wanted: SchedulingTerms, idle: bool) -> bool:
        if not self.in_flavor[flavor][self.index[state.node.name]]:
            return False
        return (well(state.node) if idle else state.node).accepts(wanted)

    def rows_of(self, amounts: Mapping[str, Resources]) -> dict[int, Matrix]:
        """Amounts by node name as vectors (R) by node number; names of no node are left out."""
        return {self.index[n]: self._new_row(a) for n, a in amounts.items() if n in self.index}

    def closed(self, avoid: frozenset[str]) -> Mask | None:
        """Node mask of an avoid list; None = nothing to avoid."""
        if not avoid:
            return None
        if avoid not in self._closed:
            self._closed[avoid] = np.array([name in avoid for name in self.names], dtype=bool)
        return self._closed[avoid]


def fits(free: Matrix, rows: Rows) -> bool:
    """Whether so much is free (N x R) wherever something of these rows is asked for."""
    return all(bool((free[node] >= row)[row > 0].all()) for node, row in rows.items())


def added(free: Matrix, at: Numbers, amounts: Matrix) -> Matrix:
    """`free` (K x R), changed: with amounts added to these rows (E, E x R). By column, as numpy is fast for those."""
    for column in range(free.shape[1]):
        np.add.at(free[:, column], at, amounts[:, column])
    return free


def _same_place(old: Node, new: Node) -> bool:
    """Whether two records are of one node with the same labels and sizes."""
    return old is new or (old.name, old.labels, old.allocatable) == (new.name, new.labels, new.allocatable)


def well(node: Node) -> Node:
    """The node without what keeps pods away for a time: cordons, unreadiness, and the taints that go with
    them.
    """
    lasting = tuple(t for t in node.taints if not t.key.startswith("node.kubernetes.io/"))
    return replace(node, unschedulable=False, ready=True, taints=lasting)


def _resources(snapshot: Snapshot) -> set[str]:
    found: set[str] = set()
    for state in snapshot.nodes:
        found.update(state.node.allocatable)
    for admitted in snapshot.admitted:
        for pod_set in admitted.workload.pod_sets:
            found.update(pod_set.requests)
        for amounts in admitted.bound.values():
            found.update(amounts)
    return found


def _domains(snapshot: Snapshot) -> tuple[list[Numbers], list[list[tuple[str, ...]]]]:
    numbers: list[Numbers] = []
    names: list[list[tuple[str, ...]]] = []
    for level in range(len(snapshot.topology.keys)):
        paths = [snapshot.topology.domain(s.node, level) for s in snapshot.nodes]
        known = sorted({p for p in paths if p is not None})
        order = {path: i for i, path in enumerate(known)}
        numbers.append(np.array([-1 if p is None else order[p] for p in paths], dtype=np.intp))
        names.append(known)
    return numbers, names

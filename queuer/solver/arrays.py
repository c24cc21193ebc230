"""Arrays that a decision derives from a snapshot alone, at any time: nodes, quota rows, running and waiting work.

It is kept from cycle to cycle and moved on by what differs between two snapshots; a decision reads it and changes
copies. Records are compared by identity first, so whoever makes snapshots should keep the records that stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from queuer.domain.capacity import Use, live_capacity, lost_in_use
from queuer.domain.quantity import Resources
from queuer.domain.quota import Charge, QuotaBook, charge_for
from queuer.domain.reasons import Reason
from queuer.domain.usage import Usage
from queuer.solver.faults import faults_of_admitted, faults_of_sums, faults_of_tree, unsound
from queuer.solver.nodes import Nodes, Rows
from queuer.solver.records import Admitted, Snapshot
from queuer.solver.shapes import Waiting
from queuer.solver.slots import Room


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """An admitted workload with what it takes: quota of its queue, and the amounts of its bound pods by node."""

    admitted: Admitted
    charge: Charge
    rows: Rows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Arrays:
    """Of one snapshot; nobody changes them. `usage`: of all admitted work. `running`: running work by uid.
    `lost`: see `lost_in_use`. `idle`: the nodes were they empty. `unstartable`: by shape, why a gang can never start
    on these, whatever is in use.
    """

    snapshot: Snapshot
    nodes: Nodes
    book: QuotaBook
    usage: Usage
    running: Mapping[str, Running]
    waiting: Waiting
    idle: Room
    lost: Mapping[str, Resources]
    unstartable: dict[int, Reason | None] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Arrays:
        """From the snapshot alone. Raises InvalidInput, with the fields, where it contradicts itself."""
        nodes = Nodes(snapshot)
        if any(faults_of_sums(snapshot)):
            raise unsound(snapshot)
        running = _running(snapshot, nodes, {})
        lost = _lost(snapshot, nodes, running)
        book = _book(snapshot, nodes, lost)
        return cls(
            snapshot=snapshot,
            nodes=nodes,
            book=book,
            running=running,
            usage=_count(Usage(book), running, {}),
            lost=lost,
            waiting=Waiting.of(snapshot, nodes),
            idle=Room(nodes, nodes.alloc),
        )

    def follow(self, snapshot: Snapshot) -> Arrays:
        """The same as `Arrays.of`, by what differs; a decision cannot tell which."""
        if snapshot is self.snapshot:
            return self
        nodes = self.nodes.follow(snapshot)
        if nodes is None or self.waiting.crowded or not nodes.knows(self._named_anew(snapshot)):
            return Arrays.of(snapshot)
        running = _running(snapshot, nodes, self.running)
        lost = _lost(snapshot, nodes, running)
        same = lost == self.lost and snapshot.tree == self.book.tree
        book = self.book if same else _book(snapshot, nodes, lost)
        usage = _count(self.usage.copy(), running, self.running) if same else _count(Usage(book), running, {})
        waiting, stays = self.waiting.follow(snapshot, nodes), nodes.accepts_as(self.nodes)
        return Arrays(
            snapshot=snapshot,
            nodes=nodes,
            book=book,
            running=running,
            usage=usage,
            lost=lost,
            waiting=waiting,
            idle=self.idle.on(nodes) if stays else Room(nodes, nodes.alloc),
            unstartable=self.unstartable if stays and same and waiting.shapes is self.waiting.shapes else {},
        )

    def __post_init__(self) -> None:
        """Every uid is there once."""
        snapshot, lines = self.snapshot, self.waiting
        waiting, admitted = len(lines.gangs) + len(lines.aside), len(self.running)
        if (waiting, admitted) != (len(snapshot.pending), len(snapshot.admitted)) or not (
            lines.gangs.keys().isdisjoint(lines.aside.keys())
            and self.running.keys().isdisjoint(lines.gangs.keys())
            and self.running.keys().isdisjoint(lines.aside.keys())
        ):
            raise unsound(snapshot)

    def _named_anew(self, snapshot: Snapshot) -> Iterator[str]:
        """The resources that running work names which was not there before."""
        for admitted in snapshot.admitted:
            run = self.running.get(admitted.workload.uid)
            if run is None or run.admitted is not admitted:
                for pod_set in admitted.workload.pod_sets:
                    yield from pod_set.requests
                for amounts in admitted.bound.values():
                    yield from amounts


def _book(snapshot: Snapshot, nodes: Nodes, lost: Mapping[str, Resources]) -> QuotaBook:
    """The quota of queues that make a tree."""
    if any(faults_of_tree(snapshot.tree)):
        raise unsound(snapshot)
    return QuotaBook(snapshot.tree, live_capacity(nodes.capacity(), lost))


def _running(snapshot: Snapshot, nodes: Nodes, known: Mapping[str, Running]) -> dict[str, Running]:
    """The running work. `known`: that of an earlier snapshot, on the same nodes."""
    runs: dict[str, Running] = {}
    for admitted in snapshot.admitted:
        uid = admitted.workload.uid
        run = known.get(uid)
        if run is None or (run.admitted is not admitted and run.admitted != admitted):
            if any(faults_of_admitted(admitted)):
                raise unsound(snapshot)
            charge = charge_for(admitted.workload, admitted.flavors, admitted.counts)
            run = Running(admitted, charge, nodes.rows_of(admitted.bound))
        runs[uid] = run
    return runs


def _count(usage: Usage, runs: Mapping[str, Running], known: Mapping[str, Running]) -> Usage:
    """`usage`, which counts the `known` work, changed to count these runs instead."""
    for there, others, times in ((runs, known, 1), (known, runs, -1)):
        for uid, run in there.items():
            if others.get(uid) is not run:
                usage.add(run.admitted.workload.queue, run.charge, times=times)
    return usage


def _lost(snapshot: Snapshot, nodes: Nodes, runs: Mapping[str, Running]) -> Mapping[str, Resources]:
    """See `lost_in_use`; it is mostly nothing, which a look at the arrays tells."""
    gone = any(len(run.rows) < len(run.admitted.bound) for run in runs.values())
    if not gone and not (nodes.bound_free < 0).any():
        return {}
    known = {state.node.name: state.node for state in snapshot.nodes}
    uses = (Use(run.admitted.workload, run.admitted.flavors, run.admitted.bound) for run in runs.values())
    return lost_in_use(known, snapshot.flavors, uses)

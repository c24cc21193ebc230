"""Arrays that a decision derives from a snapshot alone, at any time: nodes, quota rows, running and waiting work.

It is kept from cycle to cycle and moved on by what differs between two snapshots; a decision reads it and changes
copies. Records are compared by identity first, so whoever makes snapshots should keep the records that stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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
    `idle`: the nodes were they empty. `unstartable`: by shape, why a gang can never start on these, whatever
    is in use.
    """

    snapshot: Snapshot
    nodes: Nodes
    book: QuotaBook
    usage: Usage
    running: Mapping[str, Running]
    waiting: Waiting
    idle: Room
    unstartable: dict[int, Reason | None] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Arrays:
        """From the snapshot alone. Raises InvalidInput, with the fields, where it contradicts itself."""
        nodes = Nodes(snapshot)
        if any(faults_of_sums(snapshot)):
            raise unsound(snapshot)
        book = _book(snapshot, nodes)
        usage = Usage(book)
        return cls(
            snapshot=snapshot,
            nodes=nodes,
            book=book,
            running=_running(snapshot, nodes, usage, {}),
            usage=usage,
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
        book = self.book if snapshot.tree == self.book.tree else _book(snapshot, nodes)
        same = book is self.book
        usage = self.usage.copy() if same else Usage(book)
        waiting, stays = self.waiting.follow(snapshot, nodes), nodes.accepts_as(self.nodes)
        return Arrays(
            snapshot=snapshot,
            nodes=nodes,
            book=book,
            running=_running(snapshot, nodes, usage, self.running if same else {}),
            usage=usage,
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
        """The resources that records name which were not there before."""
        gangs, runs = self.waiting.gangs, self.running
        for pending in snapshot.pending:
            gang = gangs.get(pending.workload.uid)
            if gang is None or gang.pending is not pending:
                for pod_set in pending.workload.pod_sets:
                    yield from pod_set.requests
        for admitted in snapshot.admitted:
            run = runs.get(admitted.workload.uid)
            if run is None or run.admitted is not admitted:
                for pod_set in admitted.workload.pod_sets:
                    yield from pod_set.requests
                for amounts in admitted.bound.values():
                    yield from amounts


def _book(snapshot: Snapshot, nodes: Nodes) -> QuotaBook:
    """The quota of queues that make a tree."""
    if any(faults_of_tree(snapshot.tree)):
        raise unsound(snapshot)
    return QuotaBook(snapshot.tree, nodes.capacity())


def _running(
    snapshot: Snapshot, nodes: Nodes, usage: Usage, known: Mapping[str, Running]
) -> dict[str, Running]:
    """The running work, counted in `usage`, which counts the `known` work already."""
    runs: dict[str, Running] = {}
    for admitted in snapshot.admitted:
        uid = admitted.workload.uid
        run = known.get(uid)
        if run is None or (run.admitted is not admitted and run.admitted != admitted):
            if any(faults_of_admitted(admitted)):
                raise unsound(snapshot)
            charge = charge_for(admitted.workload, admitted.flavors, admitted.counts)
            run = Running(admitted, charge, nodes.rows_of(admitted.bound))
            usage.add(admitted.workload.queue, charge)
        runs[uid] = run
    for uid, run in known.items():
        if runs.get(uid) is not run:
            usage.add(run.admitted.workload.queue, run.charge, times=-1)
    return runs

"""Who holds what a waiting gang lacks, in a queue or on nodes: work that runs, work that starts in this very cycle, and
gangs for which something is held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from queuer.domain.quantity import format_quantity
from queuer.domain.quota import Account
from queuer.domain.workload import Workload
from queuer.solver.cycle import Cycle
from queuer.solver.ends import end_of
from queuer.solver.frame import Taken
from queuer.solver.outcome import Chosen

HOLDERS = 3
"""How many holders are named at most."""

Holder = Mapping[str, Any]


class Holders:
    """Who holds what once all have had their turns. `put_off`: uids of what does not start after all."""

    def __init__(self, cycle: Cycle, put_off: frozenset[str]) -> None:
        self._put_off = put_off
        self._board = cycle.board
        self._cycle = cycle
        self.in_queue = cache(self._find_in_queue)

    def _find_in_queue(self, queue: str, account: Account, later: bool) -> tuple[Holder, ...]:
        """Who uses most of an account in a queue: its children, its own workloads. `later`: without what is leaving,
        with the bound gangs.
        """
        board, resource = self._board, account[1]
        bound = self._bound_in(queue, account) if later else {}
        kids = board.book.tree.children[queue]
        used = {kid: board.now.usage.used(kid, account) for kid in kids}
        if later:
            held_in = {kid: sum(self._bound_in(kid, account).values()) for kid in kids}
            used = {kid: board.later.usage.used(kid, account) - held_in[kid] for kid in kids}
        gone = board.leaving if later else set()
        here = (uid for uid in self._running.get(queue, ()) if uid not in gone)
        own = {uid: board.holds[uid].charge.get(account, 0) for uid in here}
        own |= {c.gang.uid: c.charge.get(account, 0) for c in self._starting_in.get(queue, ())}
        return tuple(
            {"queue": name, **_held(resource, n)} if name in used else self._named(name, resource, n)
            for name, n in most({**used, **own, **bound})
        )

    def on_nodes(self, nodes: Collection[int], resource: str) -> tuple[Holder, ...]:
        """Who holds most of a resource on some nodes."""
        column = self._board.frame.column[resource]
        there = {uid for node in nodes for uid in self._on_node.get(node, ())}
        uses = {uid: sum(int(row[column]) for node, row in self._rows(uid) if node in nodes) for uid in there}
        return tuple(self._named(uid, resource, n) for uid, n in most(uses))

    def _named(self, uid: str, resource: str, amount: int) -> Holder:
        """A workload that holds something: until when, if that is known; whether it starts, leaves or is bound."""
        board = self._board
        if uid in board.holds:
            admitted = board.holds[uid].admitted
            leaves = admitted.releasing or uid in board.leaving
            return _row(admitted.workload, resource, amount, ends=admitted.expected_end, leaving=leaves)
        if uid in self._starting:
            own = self._starting[uid].gang.pending.workload
            return _row(own, resource, amount, ends=end_of(own, start=board.time), starting=True)
        return _row(board.bound[uid][0], resource, amount, held=True)

    def _rows(self, uid: str) -> Taken:
        """What it holds by node (vectors of R)."""
        board = self._board
        if uid in board.holds:
            return list(board.holds[uid].rows.items())
        if uid in self._starting:
            chosen = self._starting[uid]
            return board.rows(chosen.gang.pending.workload, chosen.spreads)
        return board.held[uid]

    def _bound_in(self, queue: str, account: Account) -> dict[str, int]:
        """What is held for each bound gang of the queue's subtree."""
        bound = self._board.bound
        found = {uid: bound[uid][1].get(account, 0) for uid in self._bound_below.get(queue, ())}
        return {uid: amount for uid, amount in found.items() if amount}

    @cached_property
    def _bound_below(self) -> Mapping[str, Sequence[str]]:
        """Bound gangs by each queue above them."""
        found: dict[str, list[str]] = {}
        for uid, (workload, _) in self._board.bound.items():
            for queue in self._board.book.lineage(workload.queue):
                found.setdefault(queue, []).append(uid)
        return found

    @cached_property
    def _starting(self) -> Mapping[str, Chosen]:
        """What this cycle starts."""
        return {c.gang.uid: c for c in self._cycle.started() if c.gang.uid not in self._put_off}

    @cached_property
    def _starting_in(self) -> Mapping[str, Sequence[Chosen]]:
        """The same by leaf."""
        found: dict[str, list[Chosen]] = {}
        for chosen in self._starting.values():
            found.setdefault(chosen.gang.queue, []).append(chosen)
        return found

    @cached_property
    def _running(self) -> Mapping[str, Sequence[str]]:
        """Uids of what is admitted, by queue: the leaf, or where that is no more the queue that was above it."""
        found: dict[str, list[str]] = {}
        for uid, hold in self._board.holds.items():
            leaf = self._board.book.lineage(hold.admitted.workload.queue)[0]
            found.setdefault(leaf, []).append(uid)
        return found

    @cached_property
    def _on_node(self) -> Mapping[int, Sequence[str]]:
        """Uids of what holds something on a node."""
        found: dict[int, dict[str, None]] = {}
        for uid in (*self._board.holds, *self._starting, *self._board.held):
            for node, _ in self._rows(uid):
                found.setdefault(node, {})[uid] = None
        return {node: tuple(uids) for node, uids in found.items()}


def most(amounts_by: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest amounts above 0, equal ones by name."""
    found = sorted(amounts_by.items(), key=lambda item: (-item[1], item[0]))[:HOLDERS]
    return [(name, amount) for name, amount in found if amount > 0]


def _held(resource: str, amount: int) -> dict[str, str]:
    return {"resource": resource, "amount": format_quantity(amount, resource=resource)}


def _row(own: Workload, resource: str, amount: int, *, ends: float | None = None, **marks: bool) -> Holder:
    """`marks`: those that apply are told."""
    found: dict[str, Any] = {"workload": own.uid, "name": own.name, "namespace": own.namespace}
    found |= {"queue": own.queue, **_held(resource, amount)}
    return {
        **found,
        **({} if ends is None else {"ends": ends}),
        **{name: True for name, on in marks.items() if on},
    }

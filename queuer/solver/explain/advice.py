"""What would let a waiting gang start now, and with how many evictions: changes tried with the decision itself.

Each is searched for on what the plan leaves, beside those alone that something is held for. What is told was tried
beside all that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from queuer.domain.assignments import Admission
from queuer.domain.errors import InvalidInput
from queuer.domain.quantity import add, format_quantity
from queuer.domain.queue import QueueTree
from queuer.domain.quota import Account, Shortfall
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.ends import end_of
from queuer.solver.offered import offered
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Plan, Snapshot, Unbound
from queuer.solver.shapes import Gang
from queuer.solver.state import State
from queuer.solver.verified import UnsoundPlan

WITHOUT_SOLVER = Budget(deterministic=0.0)


class Aftermath:
    """What a plan leaves, as the snapshot that would be decided on next, were that at the same moment. `pending`: all
    that waits, by uid; `started`: uids of what the plan starts.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan, *, now: float, seed: int) -> None:
        self.now, self._seed, self._plan = now, seed, plan
        offered = {p.workload.uid: p for p in snapshot.pending}
        self.started = {admission.uid for admission in plan.admissions}
        self.pending = {uid: p for uid, p in offered.items() if uid not in self.started}
        kept = dict.fromkeys([*(bond.uid for bond in plan.bonds), *(row.uid for row in plan.reservations)])
        self._base = replace(
            left_by(snapshot, plan, now=now),
            pending=tuple(self.pending[uid] for uid in kept if uid in self.pending),
        )
        self._arrays = Arrays.of(self._base)

    @cached_property
    def _whole(self) -> Arrays:
        """With all that wait: what differs from these by one gang follows soon."""
        return self._arrays.follow(_with(self._base, self.pending.values()))

    def arrays(self, *pending: Pending) -> Arrays:
        """With these gangs waiting beside those alone that something is held for."""
        return self._arrays.follow(_with(self._base, pending))

    def whole(self) -> Arrays:
        """With all waiting that wait."""
        return self._arrays.follow(replace(self._base, pending=tuple(self.pending.values())))

    def evictions(
        self, pending: Pending, *, tree: QueueTree | None = None, gone: str | None = None, all_: bool = False
    ) -> int | None:
        """How many would be evicted for the gang, as it is given, with this tree and this admitted workload gone; None:
        it would not start. `all_`: beside all who wait, as what gives others room may change the order of turns, too.
        """
        uid = pending.workload.uid
        others = self.pending.values() if all_ else ()
        snapshot = _with(self._base, [*others, pending])
        snapshot = replace(snapshot, tree=tree or snapshot.tree)
        if gone is not None:
            snapshot = _without(snapshot, gone)
        if all_:  # who leaves may leave room to others of its user
            snapshot, _ = offered(snapshot, self._plan)
        arrays = (self._whole if all_ else self._arrays).follow(snapshot)
        try:
            plan = decide(snapshot, now=self.now, seed=self._seed, budget=WITHOUT_SOLVER, arrays=arrays)
        except UnsoundPlan:  # nothing is promised by a plan that does not stand
            return None
        if any(admission.uid == uid for admission in plan.admissions):
            return 0
        return sum(eviction.beneficiary == uid for eviction in plan.evictions) or None


def left_by(snapshot: Snapshot, plan: Plan, *, now: float) -> Snapshot:
    """What a plan leaves: its starts admitted, its victims on their way out, all others waiting."""
    offered = {p.workload.uid: p for p in snapshot.pending}
    started = {admission.uid for admission in plan.admissions}
    leaving = {eviction.uid for eviction in plan.evictions}
    admitted = [replace(a, releasing=True) if a.workload.uid in leaving else a for a in snapshot.admitted]
    admitted += [_admitted(offered[a.uid].workload, a, now=now) for a in plan.admissions]
    return replace(
        snapshot,
        admitted=tuple(admitted),
        pending=tuple(p for p in snapshot.pending if p.workload.uid not in started),
        bonds=plan.bonds,
        reservations=plan.reservations,
    )


def _with(snapshot: Snapshot, pending: Iterable[Pending]) -> Snapshot:
    rows = {row.workload.uid: row for row in (*snapshot.pending, *pending)}
    return replace(snapshot, pending=tuple(rows.values()))


def _admitted(workload: Workload, admission: Admission, *, now: float) -> Admitted:
    rows = admission.assignments
    return Admitted(
        workload=workload,
        counts={row.pod_set: row.count for row in rows},
        flavors={row.pod_set: row.flavor for row in rows},
        since=now,
        unbound=tuple(Unbound(pod_set=r.pod_set, count=r.count, hosts=tuple(r.nodes)) for r in rows),
        expected_end=end_of(workload, start=now),
    )


def _without(snapshot: Snapshot, uid: str) -> Snapshot:
    gone = next(a for a in snapshot.admitted if a.workload.uid == uid)

    def left(state: NodeState) -> NodeState:
        amounts = gone.bound.get(state.node.name)
        return state if amounts is None else replace(state, used=add(state.used, amounts, times=-1))

    return replace(
        snapshot,
        nodes=tuple(left(state) for state in snapshot.nodes),
        admitted=tuple(a for a in snapshot.admitted if a is not gone),
    )


class Advisor:
    """Changes for one gang, tried one by one."""

    def __init__(self, after: Aftermath, state: State, gang: Gang) -> None:
        self._after, self._state, self._gang = after, state, gang
        self._workload = gang.workload

    def changes(
        self, short: Sequence[Shortfall], holders: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Single changes after which it starts, each `{"change": …, "evictions": …}`, those without an eviction first.
        `short`: rows of quota in its way; `holders`: who has what it lacks. What costs no fewer than
        no change is left out. None where it starts without any.
        """
        unchanged = self._after.evictions(self._gang.pending)
        if unchanged == 0:
            return []
        found = [*self._wider(), *self._fewer(), *self._borrowing(), *self._raised(short)]
        found = [each for each in found if unchanged is None or each[1] < unchanged]
        found.sort(key=lambda each: each[1])
        told: list[dict[str, Any]] = [{"change": change, "evictions": count} for change, count in found]
        for holder in holders:
            runs = "workload" in holder and not holder.keys() & {"held", "leaving"}
            if runs and self._after.evictions(self._gang.pending, gone=holder["workload"], all_=True) == 0:
                row = {"change": f"{holder['namespace']}/{holder['name']} ends", "evictions": 0}
                row |= {key: holder[key] for key in ("namespace", "name", "queue", "resource", "amount")}
                told.append({**row, "by": holder["ends"]} if "ends" in holder else row)
        return told

    def _evictions(self, *, surely: bool = False, **changed: Any) -> int | None:
        """`surely`: beside all that wait, as some keep a place that is not held for them. It is dear."""
        workload = replace(self._workload, **changed)
        return self._after.evictions(replace(self._gang.pending, workload=workload), all_=surely)

    def _wider(self) -> Iterator[tuple[str, int]]:
        """The narrowest wider level, and the narrowest that costs nobody his place."""
        topology = self._state.snapshot.topology
        if self._workload.required is not None:
            at = topology.find(self._workload.required) or 0
            for level in (*reversed(topology.levels[:at]), None):
                if self._evictions(required=level) is None:
                    continue
                count = self._evictions(surely=True, required=level)
                if count is not None:
                    yield f"topology={level or 'any'}", count
                if not count:
                    return

    def _fewer(self) -> Iterator[tuple[str, int]]:
        """The most pods of the largest set that fit beside all that run."""
        sets = {p.name: p for p in self._workload.pod_sets}
        least = {name: p.least for name, p in sets.items()}
        name = max(least, key=lambda key: least[key])

        def starts(count: int, *, surely: bool = False) -> bool:
            fewer = replace(sets[name], count=count, min_count=None)
            return self._evictions(surely=surely, pod_sets=tuple({**sets, name: fewer}.values())) == 0

        if least[name] > 1 and starts(1):
            most = _bisect(least[name] - 1, starts)
            if starts(most, surely=True):
                yield f"{name}.count<={most}", 0

    def _borrowing(self) -> Iterator[tuple[str, int]]:
        """That it may be evicted."""
        count = None if self._workload.preemptible else self._evictions(surely=True, preemptible=True)
        if count is not None:
            yield "preemptible=true", count

    def _raised(self, short: Sequence[Shortfall]) -> Iterator[tuple[str, int]]:
        """The least limits that have room for it, if the tree may have them."""
        rows: dict[str, dict[Account, int]] = {}
        for row in (row for row in short if not row.live):
            there = rows.setdefault(row.queue, {})
            there[row.account] = max(there.get(row.account, 0), row.held + row.asks)
        tree = _grown(self._state.book.tree, rows) if rows else None
        count = None if tree is None else self._after.evictions(self._gang.pending, tree=tree, all_=True)
        if count is not None:
            limits = (
                f"{queue} limit {', '.join(_said(account, amount) for account, amount in there.items())}"
                for queue, there in rows.items()
            )
            yield " and ".join(limits), count


def _said(account: Account, amount: int) -> str:
    flavor, resource = account
    name = resource if flavor is None else f"{resource} on {flavor}"
    return f"{name}>={format_quantity(amount, resource=resource)}"


def _grown(tree: QueueTree, limits: Mapping[str, Mapping[Account, int]]) -> QueueTree | None:
    """The tree with these limits; None: it is none then."""
    queues = dict(tree.queues)
    for path, there in limits.items():
        rows = [
            replace(row, limit=there.get((row.flavor, row.resource), row.limit)) for row in queues[path].quota
        ]
        queues[path] = replace(queues[path], quota=tuple(rows))
    try:
        return QueueTree.of(queues.values())
    except InvalidInput:
        return None


def _bisect(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `most` for which it holds, as it does for 1 and all smaller ones."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low

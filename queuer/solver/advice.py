"""Changes that would let a waiting gang start now, and how many evictions each needs, tried with the decision itself.

A change is searched for beside the gangs alone that something is held for. It is told only if it also works beside all
that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from queuer.domain.errors import InvalidInput
from queuer.domain.queue import QueueTree
from queuer.domain.quota import Account, Shortfall
from queuer.domain.reasons import ChangeKind, JobChange, Limit
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.shapes import Gang
from queuer.solver.state import State


class Advisor:
    """Changes for one gang, tried one by one."""

    def __init__(self, after: AfterCycle, state: State, gang: Gang) -> None:
        self._after, self._state, self._gang = after, state, gang
        self._workload = gang.workload

    def changes(
        self, short: Sequence[Shortfall], holders: Sequence[Mapping[str, Any]]
    ) -> tuple[JobChange, ...]:
        """Single changes after which the gang starts, those without an eviction first; none if it starts anyway.

        `short`: rows of quota in its way; `holders`: who has what it lacks. A change that costs as many evictions as no
        change is left out.
        """
        unchanged = self._after.evictions(self._gang.pending)
        if unchanged == 0:
            return ()
        tried = [*self._wider(), *self._fewer(), *self._borrowing(), *self._raised(short)]
        found = [each for each in tried if unchanged is None or each.evictions < unchanged]
        ends = (
            JobChange(kind=ChangeKind.END, job=holder)
            for holder in holders
            if "workload" in holder
            and not holder.keys() & {"held", "leaving"}
            and self._after.evictions(self._gang.pending, gone=holder["workload"], all_=True) == 0
        )
        return (*sorted(found, key=lambda each: each.evictions), *ends)

    def _evictions(self, *, surely: bool = False, **changed: Any) -> int | None:
        """`surely`: beside all that wait, as some keep a place that is not held for them. It is dear."""
        workload = replace(self._workload, **changed)
        return self._after.evictions(replace(self._gang.pending, workload=workload), all_=surely)

    def _wider(self) -> Iterator[JobChange]:
        """The narrowest wider level, and the narrowest that costs no eviction."""
        topology = self._state.snapshot.topology
        if self._workload.required is not None:
            at = topology.find(self._workload.required) or 0
            for level in (*reversed(topology.levels[:at]), None):
                if self._evictions(required=level) is None:
                    continue
                count = self._evictions(surely=True, required=level)
                if count is not None:
                    yield JobChange(kind=ChangeKind.LEVEL, level=level, evictions=count)
                if not count:
                    return

    def _fewer(self) -> Iterator[JobChange]:
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
                yield JobChange(kind=ChangeKind.COUNT, pod_set=name, count=most)

    def _borrowing(self) -> Iterator[JobChange]:
        """That it may be evicted."""
        count = None if self._workload.preemptible else self._evictions(surely=True, preemptible=True)
        if count is not None:
            yield JobChange(kind=ChangeKind.PREEMPTIBLE, evictions=count)

    def _raised(self, short: Sequence[Shortfall]) -> Iterator[JobChange]:
        """The least limits that have room for it, if the tree may have them."""
        rows: dict[str, dict[Account, int]] = {}
        for row in (row for row in short if not row.live):
            there = rows.setdefault(row.queue, {})
            there[row.account] = max(there.get(row.account, 0), row.held + row.asks)
        tree = _grown(self._state.book.tree, rows) if rows else None
        count = None if tree is None else self._after.evictions(self._gang.pending, tree=tree, all_=True)
        if count is not None:
            limits = tuple(
                Limit(queue=queue, flavor=flavor, resource=resource, amount=amount)
                for queue, there in rows.items()
                for (flavor, resource), amount in there.items()
            )
            yield JobChange(kind=ChangeKind.LIMITS, limits=limits, evictions=count)


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

"""What would let a waiting gang start now, and with how many evictions: changes tried with the decision itself.

Each is searched for on what the plan leaves, beside those alone that something is held for. What is told was tried
beside all that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from queuer.domain.errors import InvalidInput
from queuer.domain.quantity import format_quantity
from queuer.domain.queue import QueueTree
from queuer.domain.quota import Account, Shortfall
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

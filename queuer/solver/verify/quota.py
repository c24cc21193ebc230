"""The verifier's own quota arithmetic (DESIGN 3.1, 3.3), written as the sentences are.

It shares nothing with `queuer.domain.quota`, so that one mistake cannot hide in both. An `Uses` is a sum over
workloads, taken anew for each plan, never a counter that is kept up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from queuer.domain.nodes import flavor_of
from queuer.domain.queue import ROOT, QueueTree, QuotaRow
from queuer.domain.workload import Workload
from queuer.solver.problem import Admitted, Assignment, Snapshot

Key = tuple[str | None, str]
"""(flavor, resource); None = all flavors together."""
Amounts = Mapping[Key, int]


def amounts_of(workload: Workload, counts: Mapping[str, int], flavors: Mapping[str, str]) -> dict[Key, int]:
    """What a workload counts for: each amount by flavor and once more under any flavor."""
    total: dict[Key, int] = {}
    for pod_set in workload.pod_sets:
        count, accounts = counts.get(pod_set.name, 0), {flavors.get(pod_set.name), None}
        for resource, amount in pod_set.requests.items() if count else ():
            for flavor in accounts if amount else ():
                total[flavor, resource] = total.get((flavor, resource), 0) + amount * count
    return total


def amounts_at(workload: Workload, places: Iterable[Assignment]) -> dict[Key, int]:
    """`amounts_of` for what a plan assigns."""
    rows = tuple(places)
    return amounts_of(workload, {r.pod_set: r.count for r in rows}, {r.pod_set: r.flavor for r in rows})


class QuotaRows:
    """The tree's rows as questions. Live capacity counts every node that belongs to a flavor."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.tree: QueueTree = snapshot.tree
        self._rows: dict[tuple[str, Key], QuotaRow] = {
            (queue.path, (row.flavor, row.resource)): row for queue in self.tree for row in queue.quota
        }
        self._live: dict[Key, int] = {}
        for state in snapshot.nodes:
            flavor = flavor_of(state.node, snapshot.flavors)
            if flavor is not None:
                for resource, amount in state.node.allocatable.items():
                    self._live[flavor, resource] = self._live.get((flavor, resource), 0) + amount
        for (_, resource), amount in tuple(self._live.items()):
            self._live[None, resource] = self._live.get((None, resource), 0) + amount
        self.lends_less = frozenset(key for (_, key), row in self._rows.items() if row.lend is not None)
        self.path = cache(self._path)
        self.guaranteed = cache(self._guaranteed)
        self.claimed = cache(self._claimed)
        self.flavors_for = cache(self._flavors_for)

    def _path(self, queue: str) -> tuple[str, ...]:
        """The queue and its ancestors, those that still exist; never empty."""
        parts = queue.split(".")
        found = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        return tuple(p for p in found if p in self.tree) or (ROOT,)

    def limit(self, queue: str, key: Key) -> int | None:
        """None = nothing but the ancestors binds."""
        row = self._rows.get((queue, key))
        written = row.limit if row is not None else None
        if queue != ROOT:
            return written
        live = self._live.get(key, 0)
        return live if written is None else min(live, written)

    def unlent(self, queue: str, key: Key) -> int:
        """The part of a queue's guarantee that stays its own while idle."""
        row = self._rows.get((queue, key))
        return 0 if row is None or row.lend is None else max(0, self.guaranteed(queue, key) - row.lend)

    def _guaranteed(self, queue: str, key: Key) -> int:
        row = self._rows.get((queue, key))
        if row is not None and row.guaranteed is not None:
            return row.guaranteed
        children = sum(self.guaranteed(child, key) for child in self.tree.children[queue])
        if children or key[0] is not None:
            return children
        return sum(
            row.guaranteed or 0 for row in self.tree[queue].quota if row.flavor and row.resource == key[1]
        )

    def claims(self, queue: str, asks: Amounts) -> list[Key]:
        """The accounts asked in that some row below root on the path guarantees."""
        return [key for key in asks if key in self.claimed(queue)]

    def _claimed(self, queue: str) -> frozenset[Key]:
        rows = (row for path in self.path(queue) if path != ROOT for row in self.tree[path].quota)
        return frozenset((row.flavor, row.resource) for row in rows if row.guaranteed)

    def _flavors_for(self, queue: str, resource: str) -> frozenset[str] | None:
        """Flavors that the nearest queue naming any for the resource allows; None = every flavor."""
        for path in self.path(queue):
            rows = (row for row in self.tree[path].quota if row.resource == resource)
            if named := frozenset(row.flavor for row in rows if row.flavor is not None):
                return named
        return None


class Uses:
    """Who uses what at one moment: amounts by queue, ancestors included."""

    def __init__(self, rows: QuotaRows) -> None:
        self.rows = rows
        self._used: dict[str, dict[Key, int]] = {}

    @classmethod
    def of(cls, rows: QuotaRows, admitted: Iterable[Admitted]) -> Uses:
        """The sum over all that hold quota."""
        own: dict[tuple[str, str | None], dict[str, int]] = {}
        for one in admitted:
            counts, flavors, queue = one.counts, one.flavors, one.workload.queue
            for pod_set in one.workload.pod_sets:
                if count := counts.get(pod_set.name, 0):
                    there = own.setdefault((queue, flavors.get(pod_set.name)), {})
                    for resource, amount in pod_set.requests.items():
                        there[resource] = there.get(resource, 0) + amount * count
        found = cls(rows)
        for (queue, flavor), amounts in own.items():
            found.count(queue, {(f, r): n for f in {flavor, None} for r, n in amounts.items()})
        return found

    def copy(self) -> Uses:
        """The same amounts, to count further."""
        twin = Uses(self.rows)
        twin._used = {queue: dict(amounts) for queue, amounts in self._used.items()}
        return twin

    def count(self, queue: str, amounts: Amounts, *, times: int = 1) -> None:
        """Add a workload of `queue`, or with `times=-1` take it away."""
        for path in self.rows.path(queue):
            there = self._used.setdefault(path, {})
            for key, amount in amounts.items():
                there[key] = there.get(key, 0) + amount * times

    def used(self, queue: str, key: Key) -> int:
        """What the subtree of `queue` uses."""
        return self._used.get(queue, {}).get(key, 0)

    def seen(self, queue: str, key: Key) -> int:
        """What the parent counts: use, or what is not lent where that is more, at every level below."""
        used = self.used(queue, key)
        if key not in self.rows.lends_less:
            return used
        more = sum(self.seen(child, key) - self.used(child, key) for child in self.rows.tree.children[queue])
        return max(used + more, self.rows.unlent(queue, key))

    def entitled(self, queue: str, asks: Amounts, *, at: str) -> bool:
        """Whether `asks` of `queue`, counted in, stays inside the guarantee of `at` in each of its claims."""
        claims = self.rows.claims(queue, asks)
        return (
            at != ROOT
            and bool(claims)
            and all(self.used(at, k) + asks[k] <= self.rows.guaranteed(at, k) for k in claims)
        )

    def entitled_on(self, queue: str, asks: Amounts) -> frozenset[str]:
        """Where on its path `asks` of `queue` is entitled."""
        return frozenset(at for at in self.rows.path(queue) if self.entitled(queue, asks, at=at))

    def over(self, queue: str, key: Key) -> bool:
        """Whether the subtree uses more than it is guaranteed."""
        return self.used(queue, key) > self.rows.guaranteed(queue, key)


def broken_limits(
    before: Uses, after: Uses, asks: Iterable[tuple[str, Amounts]]
) -> Iterator[tuple[str, str]]:
    """The queue and a sentence for each row that `asks` (already counted in `after`) break.

    Use only grows from `before` to `after`, so the last gang to ask in an account breaks what the sum breaks.
    """
    rows = after.rows
    touched = {(path, key) for queue, amounts in asks for path in rows.path(queue) for key in amounts}
    limits = {spot: limit for spot in touched if (limit := rows.limit(*spot)) is not None}
    for path, key in sorted(limits, key=str):
        limit = limits[path, key]
        what = f"{path}: {key[0] or 'any'} {key[1]}"
        if after.used(path, key) > limit:
            yield path, f"{what} would use {after.used(path, key)} of {limit}"
        elif limit < after.seen(path, key) > before.seen(path, key):
            yield path, f"{what} would count {after.seen(path, key)} of {limit} with what is not lent"

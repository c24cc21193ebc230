"""The verifier's own quota arithmetic, written as the sentences are.

It shares nothing with `queuer.domain.quota`, so that one mistake cannot hide in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from queuer.domain.nodes import flavor_of
from queuer.domain.queue import ROOT
from queuer.domain.workload import Workload
from queuer.solver.records import Snapshot

Key = tuple[str | None, str]
"""(flavor, resource); None = all flavors together."""
Asks = Mapping[Key, int]
Part = tuple[Workload, Mapping[str, int], Mapping[str, str]]
"""A workload, its sizes and its flavors, both by pod set name."""


def _sums(parts: Iterable[Part]) -> dict[tuple[str, str | None], dict[str, int]]:
    """Requests by queue and flavor."""
    found: dict[tuple[str, str | None], dict[str, int]] = {}
    for workload, counts, flavors in parts:
        for pod_set in workload.pod_sets:
            if count := counts.get(pod_set.name, 0):
                total = found.setdefault((workload.queue, flavors.get(pod_set.name)), {})
                for resource, amount in pod_set.requests.items():
                    total[resource] = total.get(resource, 0) + amount * count
    return found


def asks_of(part: Part) -> Asks:
    """The charge of a workload: each amount by flavor and once more under any flavor."""
    total: dict[Key, int] = {}
    for (_, flavor), amounts in _sums([part]).items():
        for resource, amount in amounts.items():
            for key in {(flavor, resource), (None, resource)} if amount else ():
                total[key] = total.get(key, 0) + amount
    return total


class Book:
    """The tree's rows as questions, by queue and account. `path`: a queue and its ancestors, those that still exist;
    never empty.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.tree = tree = snapshot.tree
        self._live = _capacity(snapshot)
        self._rows = {(q.path, (row.flavor, row.resource)): row for q in tree for row in q.quota}
        self.lends_less = {key for (_, key), row in self._rows.items() if row.lend is not None}
        self.path = cache(lambda queue: tuple(q for q in tree.lineage(queue) if q in tree.queues) or (ROOT,))
        self.guaranteed = cache(self._guaranteed)
        self.claimed = cache(self._claimed)
        self.flavors_for = cache(self._flavors_for)

    def kept(self, queue: str, key: Key) -> int:
        """The part of its guarantee that a queue does not lend."""
        row = self._rows.get((queue, key))
        return 0 if row is None or row.lend is None else max(0, self.guaranteed(queue, key) - row.lend)

    def limit(self, queue: str, key: Key) -> int | None:
        """None = nothing but the ancestors binds. Root has no more than the live capacity."""
        row = self._rows.get((queue, key))
        stated = None if row is None else row.limit
        live = self._live.get(key, 0) if queue == ROOT else None
        return stated if live is None else live if stated is None else min(live, stated)

    def _guaranteed(self, queue: str, key: Key) -> int:
        row = self._rows.get((queue, key))
        if row is not None and row.guaranteed is not None:
            return row.guaranteed
        children = sum(self.guaranteed(child, key) for child in self.tree.children[queue])
        if children or key[0] is not None:
            return children
        rows = self.tree[queue].quota
        return sum(row.guaranteed or 0 for row in rows if row.flavor and row.resource == key[1])

    def claims(self, queue: str, asks: Asks) -> list[Key]:
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


def _capacity(snapshot: Snapshot) -> Asks:
    """By node the larger of its allocatable and what admitted work uses there, of nodes that belong to a flavor. Use of
    a node that is gone counts at the flavor of the first pod set that asks for the resource.
    """
    live: dict[Key, int] = {}
    used: dict[str, dict[str, int]] = {state.node.name: {} for state in snapshot.nodes}

    def count(flavor: str, resource: str, amount: int) -> None:
        for key in ((flavor, resource), (None, resource)):
            live[key] = live.get(key, 0) + amount

    for admitted in snapshot.admitted:
        for name, amounts in admitted.bound.items():
            for resource, amount in amounts.items():
                if name in used:
                    used[name][resource] = used[name].get(resource, 0) + amount
                    continue
                asking = [p.name for p in admitted.workload.pod_sets if p.requests.get(resource)]
                first = (asking or [*admitted.flavors, ""])[0]
                count(admitted.flavors.get(first, ""), resource, amount)
    for node in (state.node for state in snapshot.nodes):
        if (flavor := flavor_of(node, snapshot.flavors)) is not None:
            for resource in node.allocatable.keys() | used[node.name].keys():
                count(
                    flavor, resource, max(node.allocatable.get(resource, 0), used[node.name].get(resource, 0))
                )
    return live


class Use:
    """Use at one moment by queue, ancestors included: amounts counted in here, on top of `below`. Taken anew
    for each plan, never kept up.
    """

    def __init__(self, book: Book, below: Use | None = None) -> None:
        self.book, self._below = book, below
        self._sums: dict[str, dict[Key, int]] = {}

    def count(self, parts: Iterable[Part], *, times: int = 1) -> Use:
        """Add workloads, or with `times=-1` take them away."""
        for (queue, flavor), amounts in _sums(parts).items():
            keys = [((f, r), n * times) for f in {flavor, None} for r, n in amounts.items() if n]
            for path in self.book.path(queue):
                there = self._sums.setdefault(path, {})
                for key, amount in keys:
                    there[key] = there.get(key, 0) + amount
        return self

    def used(self, queue: str, key: Key) -> int:
        """The use of the subtree of `queue`."""
        own = self._sums[queue].get(key, 0) if queue in self._sums else 0
        return own if self._below is None else own + self._below.used(queue, key)

    def seen(self, queue: str, key: Key) -> int:
        """The amount that the parent counts: use, or the part that is not lent where that is more, at every level
        below.
        """
        used = self.used(queue, key)
        if key not in self.book.lends_less:
            return used
        more = sum(self.seen(child, key) - self.used(child, key) for child in self.book.tree.children[queue])
        return max(used + more, self.book.kept(queue, key))

    def entitled(self, queue: str, asks: Asks) -> frozenset[str]:
        """Where on its path `asks` of `queue`, counted in, stays inside the guarantee in each of its claims."""
        claims, guaranteed = self.book.claims(queue, asks), self.book.guaranteed
        path = (at for at in self.book.path(queue) if at != ROOT) if claims else ()
        return frozenset(
            at for at in path if all(self.used(at, k) + asks[k] <= guaranteed(at, k) for k in claims)
        )

    def broken(self) -> Iterator[tuple[str, Key, str]]:
        """Queue, account and a sentence for each limit that is broken by what was counted in on top."""
        before = self._below or Use(self.book)
        for path, amounts in self._sums.items():
            for key, amount in amounts.items():
                limit = self.book.limit(path, key)
                if limit is None or amount <= 0:
                    continue
                used, seen = self.used(path, key), self.seen(path, key)
                what = f"{path}: {key[0] or 'any'} {key[1]} would"
                if used > limit:
                    yield path, key, f"{what} use {used} of {limit}"
                elif limit < seen > before.seen(path, key):
                    yield path, key, f"{what} count {seen} of {limit} with what is not lent"

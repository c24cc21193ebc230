"""Whose turn it is: the tournament of DESIGN 3.4, from the root down, one gang a turn.

Choices are cached by queue. A turn changes usage on the winner's path to the root only, so only those keys
are computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from queuer.domain.queue import ROOT, Order, QueueTree, Sharing
from queuer.domain.quota import Charge, Usage
from queuer.solver.contested import Variant
from queuer.solver.problem import Pending


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What gangs that are alike share. `variants`: flavors at full size, best first; `charges` beside them.

    `least`: smallest counts by pod set. `flavors`: all that any variant names. `form`: equal for shapes that placement
    cannot tell apart, whatever their queues.
    """

    number: int
    form: int
    variants: tuple[Variant, ...]
    charges: tuple[Charge, ...]
    least: Mapping[str, int]
    flavors: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Gang:
    """A waiting gang in the tournament."""

    pending: Pending
    shape: Shape

    @property
    def uid(self) -> str:
        """The workload's uid."""
        return self.pending.workload.uid

    @property
    def queue(self) -> str:
        """The leaf."""
        return self.pending.workload.queue

    @property
    def seniority(self) -> tuple[int, float, int, str]:
        """Higher priority, earlier submit time, fewer choices of flavor, uid."""
        workload = self.pending.workload
        return (-workload.priority, workload.submitted, len(self.shape.variants), workload.uid)


class Moment(Protocol):
    """What the order depends on: what is used, plus what is held for bound gangs; shares of past use by queue."""

    claimed: Usage
    past: Mapping[str, float]


Key = tuple[bool, float, tuple[Any, ...]]


class Tournament:
    """Offers gangs turn by turn. After each `next` exactly one `done` is due."""

    def __init__(self, tree: QueueTree, gangs: Sequence[Gang], moment: Moment) -> None:
        self._tree = tree
        self._moment = moment
        self._lines: dict[str, list[Gang]] = {}
        for gang in sorted(gangs, key=lambda g: (not g.pending.first, g.seniority), reverse=True):
            self._lines.setdefault(gang.queue, []).append(gang)
        self._blocked: dict[str, set[str]] = {}
        self._best: dict[str, Gang | None] = {}
        self._keys: dict[str, dict[str, Key]] = {}
        self._version = dict.fromkeys(tree.queues, 0)
        self._cache: dict[tuple[str, int], tuple[int, bool, float]] = {}
        self._preferred: frozenset[str] = frozenset()
        self.passed_over: dict[str, str] = {}
        for queue in sorted(tree, key=lambda q: -q.path.count(".")):
            self._choose(queue.path, tree.children[queue.path])

    def next(self) -> Gang | None:
        """The gang whose turn it is; None = all have been considered."""
        return self._best[ROOT]

    def waiting(self, root: str) -> list[Gang]:
        """Gangs of a subtree that have not had their turn."""
        return [g for path, line in self._lines.items() if root in self._tree.lineage(path) for g in line]

    def prefer(self, root: str, uids: Iterable[str]) -> None:
        """Offer these before others of their priority in a packed subtree, instead of those preferred before."""
        mine = {g.uid for g in self.waiting(root)}
        self._preferred = (self._preferred - mine) | frozenset(uids)
        inside = [path for path in self._tree.queues if root in self._tree.lineage(path)]
        for path in sorted(inside, key=lambda p: -p.count(".")):
            self._lines.get(path, []).sort(key=lambda g: (not g.pending.first, self._rank(g)), reverse=True)
            self._choose(path, self._tree.children[path])
        for below, path in pairwise(self._tree.lineage(root)):
            self._choose(path, (below,))

    def _rank(self, gang: Gang) -> tuple[int, bool, float, int, str]:
        """Seniority in a packed subtree."""
        priority, submitted, choices, uid = gang.seniority
        return (priority, uid not in self._preferred, submitted, choices, uid)

    def done(self, gang: Gang, *, settled: bool) -> None:
        """The gang's turn is over. A refused one holds the line of a strict queue."""
        self._lines[gang.queue].pop()
        if not settled and self._tree.policy(gang.queue).order is Order.STRICT:
            self._blocked.setdefault(gang.queue, set()).update(gang.shape.flavors)
            self.passed_over.setdefault(gang.queue, gang.uid)
        lineage = self._tree.lineage(gang.queue)
        for path in lineage:
            self._version[path] += 1 if settled else 0
        self._choose(lineage[0], ())
        for below, path in pairwise(lineage):
            self._choose(path, (below,))

    def _choose(self, path: str, changed: Sequence[str]) -> None:
        if not self._tree.children[path]:
            line = self._lines.get(path, [])
            held = self._blocked.get(path)
            while held and line and line[-1].shape.flavors & held:
                line.pop()
            self._best[path] = line[-1] if line else None
            return
        keys = self._keys.setdefault(path, {})
        policy = self._tree.policy(path)
        packed, fair = policy.order is Order.PACKED, policy.sharing is not Sharing.PRIORITY
        for child in changed:
            gang = self._best[child]
            if gang is None:
                keys.pop(child, None)
            else:
                keys[child] = (False, 0.0, self._rank(gang)) if packed else self._key(child, gang, fair=fair)
        self._best[path] = self._best[min(keys, key=keys.__getitem__)] if keys else None

    def _key(self, child: str, gang: Gang, *, fair: bool) -> Key:
        at = (child, gang.shape.number)
        cached = self._cache.get(at)
        if cached is None or cached[0] != self._version[child]:
            charge = next(
                (c for c in gang.shape.charges if self._moment.claimed.entitled(gang.queue, c, at=child)),
                None,
            )
            share = 0.0
            if charge is None and fair and gang.shape.charges:
                share = self._moment.claimed.share(child, gang.shape.charges[0])
                share += self._moment.past.get(child, 0.0)
            cached = (self._version[child], charge is None, share)
            self._cache[at] = cached
        return (cached[1], cached[2], gang.seniority)

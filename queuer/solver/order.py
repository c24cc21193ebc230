"""Whose turn it is: the tournament of DESIGN 3.4, from the root down, one gang a turn.

Every inner queue keeps its children in a heap, by the key of what they offer. A turn changes usage on the winner's path
to the root only, and there the winner's child is the first of each heap: only those keys are computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from typing import Any, Protocol

from queuer.domain.queue import ROOT, Order, QueueTree, Sharing
from queuer.domain.quota import Charge
from queuer.domain.usage import Usage
from queuer.solver.contested import Variant
from queuer.solver.problem import Pending

Seniority = tuple[int, float, int, str]
"""Higher priority, earlier submit time, fewer choices of flavor, uid; the least goes first."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What gangs that are alike share. `variants`: flavors at full size, best first; `charges` beside them.

    `least`: smallest counts by pod set; `smallest`: the variants at these, with their charges. `flavors`: all that any
    variant names. `form`: equal for shapes that placement cannot tell apart, whatever their queues; `kind`: for shapes
    that entitlement and shares of a queue above both cannot tell apart. `partial`: there are more combinations of
    flavors.
    """

    number: int
    form: int
    kind: int
    variants: tuple[Variant, ...]
    charges: tuple[Charge, ...]
    least: Mapping[str, int]
    smallest: tuple[tuple[Variant, Charge], ...]
    flavors: frozenset[str]
    partial: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Gang:
    """A waiting gang in the tournament. `queue`: its leaf. `likeness`: equal for gangs that no turn can tell apart,
    seniority and expected run time aside.
    """

    pending: Pending
    shape: Shape
    uid: str
    queue: str
    seniority: Seniority
    likeness: int

    def place_in_line(self) -> tuple[bool, Seniority]:
        """Its place among the gangs of its leaf: those first that were interrupted by a failure not their own."""
        return (not self.pending.first, self.seniority)


class Moment(Protocol):
    """What the order depends on: what is used, plus what is held for bound gangs; shares of past use by queue."""

    claimed: Usage
    past: Mapping[str, float]


Key = tuple[bool, float, tuple[Any, ...]]


class Tournament:
    """Offers gangs turn by turn. After each `next` exactly one `done` is due."""

    def __init__(
        self,
        tree: QueueTree,
        lines: Mapping[str, Sequence[Gang]],
        moment: Moment,
        *,
        settled: Container[str] = (),
    ) -> None:
        """`lines`: gangs by leaf, in their order. `settled`: uids of those that have no turn any more. `held_up`: who
        never has one, with the refused heads of its strict queue that hold it up, by uid in the order of their turns.
        """
        self._tree = tree
        self._moment = moment
        self._lines = {
            leaf: [gang for gang in reversed(line) if gang.uid not in settled] for leaf, line in lines.items()
        }
        # By leaf: refused heads by flavor, in the order of turns.
        self._blocked: dict[str, dict[str, str]] = {}
        self._best: dict[str, Gang | None] = {}
        self._heaps: dict[str, list[tuple[Key, str]]] = {}
        self._packed = {path: tree.policy(path).order is Order.PACKED for path in tree.queues}
        self._standings: dict[str, dict[int, tuple[bool, float]]] = {path: {} for path in tree.queues}
        self._paths: dict[str, tuple[tuple[str, str], ...]] = {}
        self._preferred: frozenset[str] = frozenset()
        self.held_up: dict[str, tuple[str, ...]] = {}
        self._choose(tree.queues)

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
        for path in inside:
            self._lines.get(path, []).sort(key=lambda g: (not g.pending.first, self._rank(g)), reverse=True)
        self._choose({*inside, *self._tree.lineage(root)})

    def _rank(self, gang: Gang) -> tuple[int, bool, float, int, str]:
        """Seniority in a packed subtree."""
        priority, submitted, choices, uid = gang.seniority
        return (priority, uid not in self._preferred, submitted, choices, uid)

    def done(self, gang: Gang, *, settled: bool) -> None:
        """The gang's turn is over. A refused one holds the line of a strict queue."""
        leaf, best = gang.queue, self._best
        self._lines[leaf].pop()
        if settled:
            for below, _ in self._path(leaf):
                self._standings[below].clear()
        elif self._tree.policy(leaf).order is Order.STRICT:
            self._blocked.setdefault(leaf, {}).update(dict.fromkeys(gang.shape.flavors, gang.uid))
        offered = best[leaf] = self._head(leaf)
        for below, path in self._path(leaf):
            heap = self._heaps[path]
            if offered is None:
                heappop(heap)
            else:
                heapreplace(heap, (self._key(path, below, offered), below))
            offered = best[path] = best[heap[0][1]] if heap else None

    def _path(self, leaf: str) -> tuple[tuple[str, str], ...]:
        """Each queue from the leaf up with its parent."""
        known = self._paths.get(leaf)
        if known is None:
            known = self._paths[leaf] = tuple(pairwise(self._tree.lineage(leaf)))
        return known

    def _head(self, leaf: str) -> Gang | None:
        """The first of the line that no refused head holds up; those held up leave the line."""
        line, heads = self._lines.get(leaf), self._blocked.get(leaf)
        while heads and line and not (flavors := line[-1].shape.flavors).isdisjoint(heads):
            ahead = dict.fromkeys(head for flavor, head in heads.items() if flavor in flavors)
            self.held_up[line.pop().uid] = tuple(ahead)
        return line[-1] if line else None

    def _choose(self, paths: Collection[str]) -> None:
        """Fill the heaps of these queues anew, from the leaves up."""
        for path in sorted(paths, key=lambda p: -p.count(".")):
            if self._tree.is_leaf(path):
                self._best[path] = self._head(path)
                continue
            heap = [
                (self._key(path, child, gang), child)
                for child in self._tree.children[path]
                if (gang := self._best[child]) is not None
            ]
            heapify(heap)
            self._heaps[path] = heap
            self._best[path] = self._best[heap[0][1]] if heap else None

    def _key(self, path: str, child: str, gang: Gang) -> Key:
        """What a queue compares its child's gang by."""
        if self._packed[path]:
            return (False, 0.0, self._rank(gang))
        kind = gang.shape.kind
        known = self._standings[child].get(kind)
        if known is None:
            known = self._standings[child][kind] = self._standing(path, child, gang)
        return (*known, gang.seniority)

    def _standing(self, path: str, child: str, gang: Gang) -> tuple[bool, float]:
        """Whether the gang would borrow at the child, and the child's share with it counted in: until somebody there is
        settled.
        """
        claimed, charges = self._moment.claimed, gang.shape.charges
        for charge in charges:
            if claimed.entitled(gang.queue, charge, at=child):
                return False, 0.0
        if not charges or self._tree.policy(path).sharing is Sharing.PRIORITY:
            return True, 0.0
        return True, claimed.share(child, charges[0]) + self._moment.past.get(child, 0.0)

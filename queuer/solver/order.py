"""The order of turns: a tournament from the root down, one gang a turn.

Every inner queue keeps its children in a heap, by the key of what they offer. A turn changes usage only on the winner's
path to the root, where the winner is the first of each heap. So only those keys are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import Any, Protocol

from queuer.domain.queue import ROOT, Order, Policy, QueueTree, Sharing
from queuer.domain.usage import Usage
from queuer.solver.shapes import Gang, Seniority


class Moment(Protocol):
    """The inputs of the order: use, with the room held for bound gangs; shares of past use by queue."""

    claimed: Usage
    past: Mapping[str, float]


Rank = tuple[bool, float]
"""Whether a gang would borrow at a queue, and the queue's share with it counted in."""
Offer = tuple[bool, float, tuple[Any, ...], str, "Gang"]
"""What a queue compares its children by, then the child and its gang. No two are of one child, so none is compared by
its gang.
"""


BEFORE_ALL = -1.0
"""The share by which work goes that a failure of the cluster interrupted; all others have 0 or more."""


class _Step:
    """From a queue to its parent: the heap and the policy there, and ranks at the queue by `quota_key`, until
    somebody in it is settled.
    """

    __slots__ = ("by_share", "heap", "packed", "queue", "ranks")

    def __init__(self, queue: str, heap: list[Offer], policy: Policy) -> None:
        self.queue = queue
        self.heap = heap
        self.packed = policy.order is Order.PACKED
        self.by_share = policy.sharing is not Sharing.PRIORITY
        self.ranks: dict[int, Rank] = {}


def by_right(gang: Gang, claimed: Usage) -> tuple[bool, bool, Seniority]:
    """The order of gangs of different leaves where nobody counts shares: interrupted ones first, then entitled ones,
    then by priority and submit time.
    """
    return (not gang.pending.first, not gang.entitled(claimed), gang.seniority)


class Tournament:
    """Offers gangs turn by turn. After each `next` exactly one `done` is due."""

    def __init__(
        self,
        tree: QueueTree,
        lines: Mapping[str, Sequence[Gang]],
        moment: Moment,
        *,
        settled: Collection[str] = (),
        refused: Callable[[Gang], bool] = lambda gang: False,
    ) -> None:
        """`lines`: gangs by leaf, in their order. `settled`: uids of those that have no turn any more. `refused`:
        whether it is known already that a gang has no place in this cycle: it needs no turn. `held_up`: who never has
        one, with the refused heads of its strict queue that hold it up, by uid.
        """
        self._tree = tree
        self._moment = moment
        self._refused = refused
        self._all, self._lines = lines, dict[str, list[Gang]]()
        # By leaf: refused heads by flavor, in the order of turns.
        self._blocked: dict[str, dict[str, str]] = {}
        self._heaps: dict[str, list[Offer]] = {path: [] for path in tree.queues if not tree.is_leaf(path)}
        self._steps = {
            queue.path: _Step(queue.path, self._heaps[above], tree.policy(above))
            for queue in tree
            if (above := queue.parent) is not None
        }
        self._paths: dict[str, tuple[_Step, ...]] = {}
        self._preferred: dict[str, int] = {}
        self._next: Gang | None = None
        self.held_up: dict[str, tuple[str, ...]] = {}
        self.restart(settled)

    def restart(self, settled: Collection[str]) -> None:
        """Offer all but these from the first again, as there is more room."""
        strict = (leaf for leaf in self._tree.leaves if self._tree.policy(leaf).order is Order.STRICT)
        self._blocked = {leaf: {} for leaf in strict}
        self.held_up.clear()
        for leaf, line in self._all.items():
            left = self._lines[leaf] = [gang for gang in reversed(line) if gang.uid not in settled]
            if self._preferred and self._tree.policy(leaf).order is Order.PACKED:
                left.sort(key=self._packed_rank, reverse=True)
        for step in self._steps.values():
            step.ranks.clear()
        self._choose(self._heaps)

    def next(self) -> Gang | None:
        """The gang whose turn it is; None = all have been considered."""
        return self._next

    def waiting(self, root: str) -> list[Gang]:
        """Gangs of a subtree that have not had their turn."""
        return [g for path, line in self._lines.items() if root in self._tree.lineage(path) for g in line]

    def prefer(self, root: str, uids: Iterable[str]) -> None:
        """Offer these before others of their priority in a packed subtree, instead of those preferred before."""
        for gang in self.waiting(root):
            self._preferred.pop(gang.uid, None)
        self._preferred.update({uid: number for number, uid in enumerate(uids)})
        inside = [path for path in self._tree.queues if root in self._tree.lineage(path)]
        for path in inside:
            self._lines.get(path, []).sort(key=self._packed_rank, reverse=True)
        self._choose(self._heaps.keys() & {*inside, *self._tree.lineage(root)})

    def _packed_rank(self, gang: Gang) -> tuple[bool, int, float, float, int, str]:
        """Seniority in a packed subtree, whose leaves are as one: those first that were interrupted by a failure."""
        priority, submitted, choices, uid = gang.seniority
        preferred = self._preferred.get(uid, inf)
        return (not gang.pending.first, priority, preferred, submitted, choices, uid)

    def done(self, gang: Gang, *, settled: bool) -> None:
        """The gang's turn is over. A refused one holds the line of a strict queue."""
        leaf = gang.queue
        path = self._paths.get(leaf) or self._path(leaf)
        self._lines[leaf].pop()
        if settled:
            for step in path:
                step.ranks.clear()
        elif leaf in self._blocked:
            self._blocked[leaf].update(dict.fromkeys(gang.shape.flavors, gang.uid))
        offered = self._head(leaf)
        for step in path:
            heap = step.heap
            if offered is None:
                heappop(heap)
            else:
                heapreplace(heap, self._offer(step, offered))
            offered = heap[0][-1] if heap else None
        self._next = offered

    def _path(self, leaf: str) -> tuple[_Step, ...]:
        """From the leaf up."""
        self._paths[leaf] = tuple([self._steps[path] for path in self._tree.lineage(leaf)[:-1]])
        return self._paths[leaf]

    def _head(self, leaf: str) -> Gang | None:
        """The first of the line that may have a turn; all before it leave the line."""
        line, heads = self._lines.get(leaf), self._blocked.get(leaf)
        while line:
            gang = line[-1]
            if heads and not gang.shape.flavors.isdisjoint(heads):
                ahead = dict.fromkeys(head for flavor, head in heads.items() if flavor in gang.shape.flavors)
                self.held_up[gang.uid] = tuple(ahead)
            elif not self._refused(gang):
                return gang
            elif heads is not None:
                heads.update(dict.fromkeys(gang.shape.flavors, gang.uid))
            line.pop()
        return None

    def _first(self, path: str) -> Gang | None:
        """The gang that a queue offers."""
        heap = self._heaps.get(path)
        if heap is None:
            return self._head(path)
        return heap[0][-1] if heap else None

    def _choose(self, paths: Collection[str]) -> None:
        """Fill the heaps of these queues anew, from the leaves up."""
        for path in sorted(paths, key=lambda p: (-p.count("."), p)):
            heap = self._heaps[path]
            heap[:] = [
                self._offer(self._steps[child], gang)
                for child in self._tree.children[path]
                if (gang := self._first(child)) is not None
            ]
            heapify(heap)
        self._next = self._first(ROOT)

    def _offer(self, step: _Step, gang: Gang) -> Offer:
        """The offer of a queue to its parent."""
        if gang.pending.first:
            return (False, BEFORE_ALL, gang.seniority, step.queue, gang)
        if step.packed:
            return (False, 0.0, self._packed_rank(gang), step.queue, gang)
        key = gang.shape.quota_key
        known = step.ranks.get(key)
        if known is None:
            known = step.ranks[key] = self._rank_at(step, gang)
        borrows, share = known
        return (borrows, share, gang.seniority, step.queue, gang)

    def _rank_at(self, step: _Step, gang: Gang) -> Rank:
        """The gang's rank at a queue as things are; only where it would borrow does the share matter."""
        at = step.queue
        claimed, charges = self._moment.claimed, gang.shape.charges
        for charge in gang.shape.choices:
            if claimed.entitled(gang.queue, charge, at=at):
                return False, 0.0
        if not (charges and step.by_share):
            return True, 0.0
        return True, claimed.share(at, charges[0]) + self._moment.past.get(at, 0.0)

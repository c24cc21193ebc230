"""Rules: everything configured, as one value. The store reads it; memory, decision and what-if take it.

With them go the flavors that a queue allows for a pod set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from queuer.domain.nodes import DEFAULT_FLAVOR, Flavor, Topology
from queuer.domain.queue import DEFAULT_ACCESS, QueueTree
from queuer.domain.workload import PodSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One configuration. `revision`: the database's, -1 where the rules are not stored."""

    tree: QueueTree = field(default_factory=lambda: QueueTree.of(()))
    flavors: tuple[Flavor, ...] = ()
    topology: Topology = field(default_factory=Topology)
    revision: int = -1

    def same_as(self, other: Rules) -> bool:
        """Whether no decision can differ between the two, whatever their revisions."""
        mine, theirs = (self.tree, self.flavors, self.topology), (other.tree, other.flavors, other.topology)
        return mine == theirs

    def max_pending(self, queue: str) -> int:
        """How many jobs of one namespace may wait for a decision in a queue."""
        access = self.tree.access(queue) if queue in self.tree else DEFAULT_ACCESS
        assert access.max_pending is not None, "it has a default"
        return access.max_pending


def allowed_flavors(
    pod_set: PodSet, *, queue: str, tree: QueueTree, flavors: Sequence[Flavor]
) -> tuple[str, ...]:
    """Flavors that the queue allows for a pod set, best first.

    For each requested resource the nearest queue on the path with rows by flavor names the flavors and their
    order. Of several such resources the first by name gives the order, the others restrict it. No such row:
    all declared flavors in their order.
    """
    names = tuple(f.name for f in flavors) or (DEFAULT_FLAVOR,)
    chosen: tuple[str, ...] | None = None
    for resource in sorted(r for r, n in pod_set.requests.items() if n):
        rows = _named(tree, queue, resource)
        if rows:
            chosen = rows if chosen is None else tuple(name for name in chosen if name in rows)
    return names if chosen is None else tuple(name for name in chosen if name in names)


def _named(tree: QueueTree, queue: str, resource: str) -> tuple[str, ...]:
    for path in tree.lineage(queue):
        if path in tree:
            rows = (row for row in tree[path].quota if row.resource == resource)
            if found := tuple(row.flavor for row in rows if row.flavor is not None):
                return found
    return ()

"""Which flavors a queue allows for a pod set, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from queuer.domain.nodes import DEFAULT_FLAVOR, Flavor
from queuer.domain.queue import QueueTree
from queuer.domain.workload import PodSet


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

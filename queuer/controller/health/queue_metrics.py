"""Gauges of each queue by resource: used, guaranteed, borrowed, lent, waited for.

The leader reads the sums of the ledger and of waiting work every few seconds, as the API does for its pages. A process
that does not lead shows none: an old figure would look like a calm one. The API server shows none either, as whoever
reaches it may read its metrics.

With a thousand queues a reading takes a second of CPU. It is computed in a thread, and each scrape gets its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.quantity import in_whole_units
from queuer.store.config import load_config, revision
from queuer.store.engine import begin
from queuer.store.usage import TreeView, amounts_of, tree_view

EVERY = 15.0
"""Seconds between two readings: Prometheus scrapes every 15 to 60 s."""
_LABELS = ("queue", "flavor", "resource")
_FAMILIES = {
    "used": "Admitted and releasing work.",
    "guaranteed": "What the queue can always claim back.",
    "limit": "What the queue never uses more than; of root at most the live capacity. None without a limit.",
    "borrowed": "Used above what is guaranteed.",
    "lent": "Of the guarantee what others use.",
    "pending": "Demand that is neither admitted, held (the job or its queue) nor unable ever to start.",
    "starved": "What others borrow of the room that the next gang of this leaf lacks inside its guarantee.",
}
"""Help by amount. Each metric has a series for each account of a queue: at most seven an account."""
_NOT_ZERO = frozenset({"borrowed", "lent", "pending", "starved"})
"""Amounts without a series where they are 0, as most are. `used` is always there: a query can fall back to 0 of it."""


class QueueMetrics(Collector):
    """Gauges of one process, as last read; without a series while it does not lead."""

    def __init__(self) -> None:
        self.families = _families(None)

    async def follow(self, engine: AsyncEngine) -> None:
        """Read until cancelled; then there are no figures any more."""
        config = None
        try:
            while True:
                async with begin(engine) as connection:
                    if config is None or config.revision != await revision(connection):
                        config = await load_config(connection)
                    view = await tree_view(connection, config)
                self.families = await asyncio.to_thread(_families, view)
                await asyncio.sleep(EVERY)
        finally:
            self.families = _families(None)

    def collect(self) -> Iterator[Metric]:
        """The gauges as last read."""
        yield from self.families


def _families(view: TreeView | None) -> tuple[Metric, ...]:
    """The gauges of a tree. Amounts are in cores, bytes or pieces."""
    families = {
        name: GaugeMetricFamily(f"queuer_queue_{name}", f"{said} With all queues below.", None, _LABELS)
        for name, said in _FAMILIES.items()
    }
    for labels, amounts in _rows(view) if view is not None else ():
        for name, amount in amounts.items():
            if amount or name not in _NOT_ZERO:
                families[name].add_metric(labels, amount)
    return tuple(families.values())


def _rows(view: TreeView) -> Iterator[tuple[tuple[str, str, str], Mapping[str, float]]]:
    """Labels and amounts of each account that a row of the queue names. Those of all flavors together come where any
    row or node has the resource. Other resources that jobs ask for must not make new series.
    """
    known = {row.resource for queue in view.config.tree for row in queue.quota}
    known |= {resource for _, resource in view.capacity}
    for path, found in view.queues.items():
        named = {(row.flavor, row.resource) for row in found.queue.quota}
        for amounts in amounts_of(view, found):
            flavor, resource = amounts.flavor, amounts.resource
            if (flavor, resource) in named or (flavor is None and resource in known):
                held = {name: getattr(amounts, name) for name in _FAMILIES}
                told = {n: in_whole_units(a, resource=resource) for n, a in held.items() if a is not None}
                yield (path, flavor or "", resource), told

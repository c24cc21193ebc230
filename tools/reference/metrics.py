"""Metrics, from the registries of the two servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from queuer.api.http.metrics import ApiMetrics
from queuer.controller.health.metrics import Metrics
from queuer.solver.process.parent import SolverProcess
from tools.reference.markdown import code, page, table


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric as it is scraped; a counter's name has its `_total`."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


def controller() -> list[Family]:
    """Those of `queuer serve controller`."""
    metrics = Metrics()
    metrics.count_writes({})
    metrics.count_undecodable(lambda: ())
    metrics.count_solver(SolverProcess())
    return list(_families(metrics.registry))


def api() -> list[Family]:
    """Those of `queuer serve api`."""
    return list(_families(ApiMetrics().registry))


def made() -> str:
    """The page."""
    said = (
        "Both servers answer `/metrics` in the Prometheus text format. Times are seconds, and a counter begins anew "
        "when its process does. No label names a job, a user or a node, nor a queue that does not exist. Only the "
        "leader shows figures of queues and workloads. `queuer_queue_*` are in cores, bytes or pieces. `flavor` is "
        "empty for all flavors together and set for rows of a quota that name one. Each queue has at most seven series "
        "for each resource that a quota or a node names. `_borrowed`, `_lent`, `_pending` and `_starved` have a series "
        "only where they are above 0: `queuer_queue_pending or 0 * queuer_queue_used` fills the rest."
    )
    parts = ["## Controller", _table(controller()), "## API server", _table(api())]
    return page("Metrics", said, *parts)


def _table(families: list[Family]) -> str:
    rows = [(code(f.name), f.type, ", ".join(map(code, f.labels)), f.help) for f in families]
    return table(("name", "type", "labels", ""), rows)


def _families(registry: CollectorRegistry) -> Iterator[Family]:
    # The library tells the labels of a family only through samples, of which a fresh one has none.
    for collector in registry._collector_to_names:
        for family in collector.collect():
            labels = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Family(name=name, type=family.type, labels=tuple(labels), help=family.documentation)

"""The controller's Prometheus metrics, in a registry of its own.

No label names a job or a user, nor a queue that does not exist: what users write must not make new series.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from queuer import __version__
from queuer.controller.health.queue_metrics import QueueMetrics
from queuer.controller.memory.live import Live, gone_by
from queuer.controller.memory.pods import PodView
from queuer.controller.tracing import TRACER
from queuer.domain.queue import QueueTree
from queuer.domain.workload import State, Workload
from queuer.solver.process.parent import SolverProcess
from queuer.solver.records import CycleStats

M = TypeVar("M")

_SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LONG = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0)


def queue_label(path: str, tree: QueueTree) -> str:
    """The queue, or `unknown` where a job names one that does not exist."""
    return path if path in tree else "unknown"


class _Row(Generic[M]):
    """A metric that each `Metrics` has, in its own registry. `more`: e.g. the buckets of a histogram."""

    def __init__(
        self, kind: Callable[..., M], name: str, help_: str, labels: Sequence[str] = (), **more: object
    ) -> None:
        self.make = partial(kind, name, help_, labels, **more)

    def __get__(self, metrics: Metrics, _: type[Metrics]) -> M:
        made: M = metrics.made[self]
        return made


class Metrics:
    """All metrics of one controller process."""

    leader = _Row(Gauge, "queuer_leader", "1 while this process decides.")
    epoch = _Row(Gauge, "queuer_leader_epoch", "Epoch under which this process decides.")
    build_info = _Row(Gauge, "queuer_build_info", "Always 1.", ["version"])
    cycles = _Row(Counter, "queuer_cycles", "Decisions by what CP-SAT did.", ["status"])
    cycle_seconds = _Row(
        Histogram, "queuer_cycle_duration_seconds", "Time of a decision by phase.", ["phase"], buckets=_SHORT
    )
    turns = _Row(
        Counter, "queuer_gangs_tried", "Gangs that had a turn in a decision, each once, alike ones left out."
    )
    victim_searches = _Row(Counter, "queuer_victim_searches", "How often victims were looked for.")
    contested = _Row(Counter, "queuer_repair_contested", "Gangs that the repair was asked to fit in.")
    repaired = _Row(Counter, "queuer_repair_started", "Those of them that it fitted in.")
    refused_gangs = _Row(Counter, "queuer_gangs_refused", "Gangs that the verifier took out of a plan.")
    solver_time = _Row(Counter, "queuer_solver_deterministic_time", "Deterministic time of CP-SAT.")
    last_cycle = _Row(
        Gauge, "queuer_cycle_last_success_timestamp_seconds",
        "End of the last decision, or when there was nothing to decide.",
    )  # fmt: skip
    refused_plans = _Row(Counter, "queuer_plans_refused", "Decisions without a plan that could be committed.")
    terms_ended = _Row(
        Counter, "queuer_leader_terms_ended", "Terms of office that ended, or could not begin, by cause.", ["cause"]
    )  # fmt: skip
    failed_tasks = _Row(
        Counter, "queuer_tasks_failed", "How often a task beside the decisions failed, to be started again.", ["task"]
    )  # fmt: skip
    quarantined = _Row(
        Counter, "queuer_workloads_quarantined", "How often the handling of one workload failed."
    )
    adopted = _Row(Counter, "queuer_adopted", "Jobs that were started beside the queue.", ["queue"])
    adoptions_refused = _Row(
        Counter, "queuer_adoptions_refused", "Jobs that run beside the queues and are charged to none."
    )
    admissions = _Row(Counter, "queuer_admissions", "Gangs admitted.", ["queue"])
    evictions = _Row(Counter, "queuer_evictions", "Gangs evicted by reason.", ["queue", "reason"])
    waited = _Row(
        Histogram, "queuer_workload_wait_seconds", "From submission to the first admission.", ["queue"],
        buckets=_LONG,
    )  # fmt: skip
    placing = _Row(
        Histogram, "queuer_workload_placing_seconds", "From the PATCH until every pod is bound.", buckets=_SHORT
    )  # fmt: skip
    estimates = _Row(Counter, "queuer_estimates", "Gangs that started after they had been told when.")
    estimate_hits = _Row(
        Counter, "queuer_estimate_hits", "Those of them that started inside the range they had last been told."
    )  # fmt: skip
    workloads = _Row(Gauge, "queuer_workloads", "Workloads by queue and state.", ["queue", "state"])
    pending = _Row(
        Gauge, "queuer_workloads_pending", "Waiting workloads by reason, misconfigured ones included.",
        ["queue", "reason", "verdict"],
    )  # fmt: skip
    guard_faults = _Row(
        Gauge, "queuer_guard_faults",
        "Policies and bindings queuer-guard that are missing or changed; 1 on a refused Kubernetes version.",
    )  # fmt: skip
    in_quarantine = _Row(
        Gauge, "queuer_workloads_in_quarantine", "Workloads that are left alone now as their handling failed."
    )  # fmt: skip
    oldest_effect = _Row(
        Gauge, "queuer_oldest_open_effect_seconds", "Age of the oldest start or eviction that no job confirms yet."
    )  # fmt: skip
    oldest_release = _Row(
        Gauge, "queuer_oldest_release_seconds",
        "How long work that ended or was evicted holds something beyond the grace of its pods, at most.",
    )  # fmt: skip
    api_errors = _Row(Counter, "queuer_k8s_api_errors", "Refused or failed writes.", ["reason"])
    drift = _Row(
        Gauge, "queuer_quota_drift", "Amounts, in base units, in which ledger, charges and pods differ.",
        ["queue", "resource"],
    )  # fmt: skip
    table_bytes = _Row(
        Gauge, "queuer_table_bytes", "Size of a table with its indexes, every 10 min by whoever leads.", ["table"]
    )  # fmt: skip
    watch_age = _Row(
        Gauge, "queuer_watch_stale_seconds", "Since when a watch has not been answering; 0 = it does.", ["resource"]
    )  # fmt: skip

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        rows = (row for row in vars(Metrics).values() if isinstance(row, _Row))
        self.made: Mapping[_Row[Any], Any] = {row: row.make(registry=self.registry) for row in rows}
        self.queues = QueueMetrics()
        self.registry.register(self.queues)
        self.build_info.labels(version=__version__).set(1)

    def show_drift(self, amounts: Mapping[tuple[str, str], int]) -> None:
        """Set the drift by queue of the tree and resource; all others are 0."""
        self.drift.clear()
        for labels, amount in amounts.items():
            self.drift.labels(*labels).set(amount)

    def show_sizes(self, sizes: Mapping[str, int]) -> None:
        """Set the size of each table."""
        for table, size in sizes.items():
            self.table_bytes.labels(table).set(size)

    def count_writes(self, writes: Mapping[tuple[str, str], int]) -> None:
        """Show a client's count of writes by (verb, resource), as it is at each scrape."""
        self._show(
            "queuer_k8s_api_writes", "Writes to the API server.", ("verb", "resource"),
            lambda: tuple(writes.items()),
        )  # fmt: skip

    def count_undecodable(self, counts: _Counts) -> None:
        """Show how many objects of each resource could not be read, as it is at each scrape."""
        self._show("queuer_undecodable", "Objects that came and were not understood.", ("resource",), counts)

    @contextmanager
    def phase(self, name: str, *, cycle: int) -> Iterator[None]:
        """Time a phase of a decision, and make a span of it."""
        began = perf_counter()
        try:
            with TRACER.start_as_current_span(f"queuer.{name}", attributes={"queuer.cycle": cycle}):
                yield
        finally:
            self.cycle_seconds.labels(name).observe(perf_counter() - began)

    def count_stats(self, stats: CycleStats) -> None:
        """Add what happened inside one decision."""
        for phase, seconds in stats.phases.items():
            self.cycle_seconds.labels(phase).observe(seconds)
        for counter, number in (
            (self.turns, stats.turns),
            (self.victim_searches, stats.searches),
            (self.contested, stats.contested),
            (self.repaired, stats.repaired),
            (self.refused_gangs, stats.refused),
            (self.solver_time, stats.solver_time),
        ):
            counter.inc(number)

    def count_solver(self, solver: SolverProcess) -> None:
        """Show what came of all that the solver process was asked, as it is at each scrape."""
        self._show(
            "queuer_solver_answers", "What came of a decision that was asked for.", ("outcome",),
            lambda: (((outcome.value,), number) for outcome, number in tuple(solver.counts.items())),
        )  # fmt: skip
        self._show(
            "queuer_solver_restarts", "Solver processes started after the first.", (),
            lambda: (((), solver.restarts),),
        )  # fmt: skip

    def _show(self, name: str, help_: str, labels: Sequence[str], counts: _Counts) -> None:
        self.registry.register(_Counted(name, help_, labels, counts))

    def count(self, workloads: Iterable[Live], tree: QueueTree, *, pods: _Pods, now: float) -> None:
        """Set the gauges of workloads from what is in memory."""
        effect = release = now
        states: Tally[tuple[str, str]] = Tally()
        reasons: Tally[tuple[str, str, str]] = Tally()
        for live in workloads:
            queue = queue_label(live.workload.queue, tree)
            states[queue, live.state.value] += 1
            if live.placement is not None:
                if live.state is State.ADMITTED:
                    effect = min(effect, live.placement.at)
                if live.left is not None:
                    release = min(release, gone_by(live, pods(live.workload)) or now)
                    effect = min(effect, live.left) if live.placement.unconfirmed else effect
            if live.state.waiting and live.explanation is not None:
                reason = live.explanation.primary
                reasons[queue, reason.token.value, reason.verdict.value] += 1
        self.oldest_effect.set(now - effect)
        self.oldest_release.set(now - release)
        self.workloads.clear()
        self.pending.clear()
        for key, number in states.items():
            self.workloads.labels(*key).set(number)
        for labels, number in reasons.items():
            self.pending.labels(*labels).set(number)

    def text(
        self, workloads: Iterable[Live], tree: QueueTree, *, pods: _Pods = lambda _: (), now: float = 0.0
    ) -> bytes:
        """The Prometheus exposition; the gauges of workloads are counted now."""
        self.count(workloads, tree, pods=pods, now=now)
        return self.exposition()

    def exposition(self) -> bytes:
        """The Prometheus exposition of what was counted last. Any thread may make it."""
        return generate_latest(self.registry)


_Pods = Callable[[Workload], Collection[PodView]]
"""The pods of a workload."""
_Counts = Callable[[], Iterable[tuple[tuple[str, ...], int]]]


class _Counted(Collector):
    """A counter that the event loop keeps. `counts` copies it whole, as another thread makes the exposition."""

    def __init__(self, name: str, help_: str, labels: Sequence[str], counts: _Counts) -> None:
        self._family = (name, help_, None, labels)
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """The counter as it is now."""
        family = CounterMetricFamily(*self._family)
        for labels, number in self._counts():
            family.add_metric(labels, number)
        yield family

"""The figures of a replay: waits, turnaround, use of the GPUs, evictions; in all and by queue of the
trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from queuer.domain.estimates import StartRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One stay on the cluster, from admission until its pods are gone; seconds."""

    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The fate of a job of `gpus` GPUs in all. Every run but the last ended by eviction. `estimate`: of its
    run
    time, when it last started.
    """

    queue: str
    gpus: int
    submitted: float
    runs: tuple[Run, ...]
    estimate: float | None = None

    @property
    def wait(self) -> float:
        """Submission to first start."""
        return self.runs[0].start - self.submitted

    @property
    def turnaround(self) -> float:
        """Submission to the end, runs that were lost and waits between them included."""
        return self.runs[-1].end - self.submitted

    @property
    def length(self) -> float:
        """Seconds of the run that was not lost."""
        return self.runs[-1].end - self.runs[-1].start

    def gpu_time(self, begin: float, end: float) -> float:
        """GPU seconds held inside a window."""
        return self.gpus * sum(max(0.0, min(r.end, end) - max(r.start, begin)) for r in self.runs)


def quantile(values: Sequence[float], part: float) -> float:
    """By nearest rank: the smallest value that at least this part of them does not exceed."""
    return sorted(values)[max(0, ceil(part * len(values)) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Seconds over jobs; percentiles by nearest rank."""

    mean: float
    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of one value or more."""
        ordered = sorted(values)
        p50, p95 = (quantile(ordered, part) for part in (0.50, 0.95))
        return cls(mean=sum(ordered) / len(ordered), p50=p50, p95=p95, max=ordered[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """One queue of the trace. `gpus`: mean number in use over the window."""

    jobs: int
    wait: Spread
    turnaround: Spread
    gpus: float
    evictions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Start ranges against real starts. `told`: gangs with a range. `inside`: part of them that started in
    it. `early`, `late`: the number of others. `open`: ranges without a latest start. `error`: from the likely
    start.
    """

    told: int
    inside: float | None
    early: int
    late: int
    open: int
    error: Spread | None

    @classmethod
    def of(cls, told: Mapping[str, StartRange], starts: Mapping[str, float]) -> Accuracy:
        """Of the range that each gang was told, by uid. `starts`: real starts."""
        pairs = [(found, starts[uid]) for uid, found in told.items()]
        inside = [f for f, start in pairs if f.earliest <= start and (f.latest is None or start <= f.latest)]
        errors = [abs(start - f.likely) for f, start in pairs if f.likely is not None]
        return cls(
            told=len(pairs),
            inside=len(inside) / len(pairs) if pairs else None,
            early=sum(start < f.earliest for f, start in pairs),
            late=sum(f.latest is not None and start > f.latest for f, start in pairs),
            open=sum(f.latest is None for f, _ in pairs),
            error=Spread.of(errors) if errors else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """The ranges that waiting gangs were told first, and last before they started."""

    forecasts: int
    first: Accuracy
    last: Accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """How well run times were known beforehand.

    `known`: part of the jobs that had an estimate. Of these: `under` ran longer. `factor_p50` is the median
    factor by which an estimate was too long or too short. `within_2` is the part with a factor of at most
    two. Zeros where none had one.
    """

    known: float
    under: float
    factor_p50: float
    within_2: float

    @classmethod
    def of(cls, outcomes: Sequence[JobOutcome]) -> RunTimes:
        """Over one outcome or more; run times and estimates below a second count as a second."""
        pairs = [(max(1.0, o.estimate), max(1.0, o.length)) for o in outcomes if o.estimate is not None]
        if not pairs:
            return cls(known=0.0, under=0.0, factor_p50=0.0, within_2=0.0)
        factors = [max(said / took, took / said) for said, took in pairs]
        return cls(
            known=len(pairs) / len(outcomes),
            under=sum(said < took for said, took in pairs) / len(pairs),
            factor_p50=quantile(factors, 0.5),
            within_2=sum(factor <= 2 for factor in factors) / len(pairs),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a replay; times in seconds.

    `wait`: submission to first start. `turnaround`: submission to the end. `utilisation`: GPU time in use over
    GPU time there was, inside the window. `decisions`: calls of `decide()`; `decisions_per_s`: by the clock on
    the wall, the engine included, forecasts too. `estimates`: None where none were asked for.
    """

    jobs: int
    wait: Spread
    turnaround: Spread
    queues: Mapping[str, QueueReport]
    run_times: RunTimes
    utilisation: float
    evictions: int
    decisions: int
    decisions_per_s: float
    estimates: Estimates | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def report(
    outcomes: Sequence[JobOutcome],
    *,
    capacity: int,
    window: tuple[float | None, float | None],
    decisions: int,
    took: float,
    estimates: Estimates | None = None,
) -> Report:
    """The report of one outcome or more. `capacity`: GPUs. `window`: None = first or last submission; where that is no
    time, until the last job has ended. `took`: wall seconds.
    """
    begin = window[0] if window[0] is not None else min(o.submitted for o in outcomes)
    end = window[1] if window[1] is not None else max(o.submitted for o in outcomes)
    if end <= begin:
        end = max(o.runs[-1].end for o in outcomes)
    by_queue: dict[str, list[JobOutcome]] = {}
    for outcome in outcomes:
        by_queue.setdefault(outcome.queue, []).append(outcome)
    length = end - begin
    queues = {name: _queue(rows, begin, end) for name, rows in sorted(by_queue.items())}
    return Report(
        jobs=len(outcomes),
        wait=Spread.of([o.wait for o in outcomes]),
        turnaround=Spread.of([o.turnaround for o in outcomes]),
        queues=queues,
        run_times=RunTimes.of(outcomes),
        utilisation=sum(o.gpu_time(begin, end) for o in outcomes) / (capacity * length),
        evictions=sum(q.evictions for q in queues.values()),
        decisions=decisions,
        decisions_per_s=decisions / took if took else 0.0,
        estimates=estimates,
    )


def _queue(outcomes: Sequence[JobOutcome], begin: float, end: float) -> QueueReport:
    length = end - begin
    return QueueReport(
        jobs=len(outcomes),
        wait=Spread.of([o.wait for o in outcomes]),
        turnaround=Spread.of([o.turnaround for o in outcomes]),
        gpus=sum(o.gpu_time(begin, end) for o in outcomes) / length,
        evictions=sum(len(o.runs) - 1 for o in outcomes),
    )

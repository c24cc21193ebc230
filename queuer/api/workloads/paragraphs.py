"""Why a job waits as paragraphs, each a label and a line of text: the CLI prints them, the page shows them.

The primary reason stands before them. Amounts are told with the numbers of the answer, times as seen from its `asOf`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

from queuer.api.workloads import detail as figures
from queuer.api.workloads.models import (
    Moment,
    Override,
    Paragraph,
    Placement,
    PodSet,
    Setting,
    WorkloadDetail,
)
from queuer.api.workloads.timeline import Held
from queuer.domain.estimates import LEAST, expected_by
from queuer.domain.quantity import age, amount_text, amounts_text, devices, readable, short
from queuer.domain.reasons import moment, plural, with_evictions
from queuer.domain.reasons.run_sentences import LATE_START, late_start
from queuer.domain.workload import State

HISTORY, NAMES = 4, 4
"""How many moments are told, the newest, and how many nodes by name."""


def paragraphs(job: WorkloadDetail, past: Sequence[Held]) -> list[Paragraph]:
    """Everything that is known of the job. `past`: the reasons for which it has waited."""
    return [Paragraph(label=label, text=text) for label, text in _paragraphs(job, past)]


def _paragraphs(job: WorkloadDetail, past: Sequence[Held]) -> Iterator[tuple[str, str]]:
    told, detail, now = job.explanation, job.explanation.detail, job.as_of
    if job.eviction:
        yield "to leave", f"evicted in {age(_until(job.eviction.at, now))}: {job.eviction.reason}"
    if detail.failure:
        yield "failure", f"{moment(detail.failure.at)}  {detail.failure.text}"
    for other in told.others:
        yield "also", f"{other.token}: {other.text}"
    if job.pod_sets:
        yield "asks", "; ".join(map(_pod_set, job.pod_sets)) + _topology(job)
    if job.user:
        yield "queued by", job.user
    if job.override:
        yield "override", _override(job.override)
    for place in job.admission.placements if job.admission else ():
        yield "placed", _placement(place)
    if (late := starts_late(job)) is not None:
        yield "not running", late_start(late, job.holds)
    yield from _terms(job)
    for available in detail.available:
        yield "free", _available(available)
    if detail.excluded:
        yield "nodes", _excluded(detail.excluded)
    for holder in detail.holders:
        yield "holds it", _holder(holder, now=now)
    if detail.ahead:
        yield "ahead", f"{detail.ahead.gangs} of the {detail.ahead.of} that wait in its queue"
    if detail.reservation:
        yield "reserved", _reservation(detail.reservation, now=now)
    if detail.estimate or detail.no_estimate:
        yield "estimate", _estimate(detail.estimate, now=now) if detail.estimate else detail.no_estimate
    if told.would_admit:
        yield "would admit", "  |  ".join(map(_change, told.would_admit))
    if job.attempt > 1:
        yield "attempt", f"{job.attempt}{_attempt_before(detail.evicted, job.timeline[-HISTORY:])}"
    if waited := _waited(past, now=now.timestamp()):
        yield "waited", waited
    for step in job.timeline[-HISTORY:]:
        yield "history", f"{moment(step.at)}  {step.text}"
    if told.do:
        yield "do", told.do
    if told.next:
        yield "next", told.next


# The job


def starts_late(job: WorkloadDetail) -> float | None:
    """Seconds since it was admitted, where that is so long that all its pods should run."""
    if job.state not in (State.ADMITTED, State.PLACING) or job.admitted is None or job.deleted:
        return None
    passed = _until(job.as_of, job.admitted)
    return passed if passed >= LATE_START else None


def _pod_set(pod_set: PodSet) -> str:
    asked = {name: amount for name, amount in pod_set.requests.items() if name != "pods" and amount != "0"}
    each = amounts_text(asked)
    least = f" (at least {pod_set.min_count})" if pod_set.min_count is not None else ""
    return f"{pod_set.count}{least} x {pod_set.name} of {each or 'nothing'}"


def _topology(job: WorkloadDetail) -> str:
    if job.required:
        return f", in one {job.required}"
    return f", in one {job.preferred} if possible" if job.preferred else ""


def _override(found: Override) -> str:
    """The settings that count instead of the job's own words, and who made each."""
    said = list[tuple[str, Setting]]()
    if found.hold is not None:
        said.append(("held" if found.hold.value else "released", found.hold))
    if found.priority is not None:
        said.append((f"priority {found.priority.value}", found.priority))
    return "; ".join(
        f"{what} by {made.by} at {moment(made.at)}{made.reason and f': {made.reason}'}" for what, made in said
    )


def _terms(job: WorkloadDetail) -> Iterator[tuple[str, str]]:
    """Until when it runs, by its own promise alone, and whether it may be evicted."""
    most, runs = job.max_runtime_seconds, job.state is State.RUNNING
    if job.state.ended or job.deleted is not None:
        return
    if runs and job.landed is not None:
        end = None if most is None else job.landed + timedelta(seconds=most)
        yield (
            "promised end",
            f"{moment(end)}, {_span(_until(end, job.as_of))}" if end else "none: it runs to its own end",
        )
    elif most is not None:
        yield "promises", f"to run {age(most)} at most"
    if runs or not job.preemptible:
        above = job.queue_borrows
        yes = f"yes: its queue uses {devices(above)} above its guarantee" if above else "yes"
        if job.safe_until is not None and job.safe_until > job.as_of and job.eviction is None:
            yes += f"; not before {moment(job.safe_until)} (minRuntime)"
        yield "evictable", yes if job.preemptible else "no: it is not preemptible"


def _span(seconds: float) -> str:
    return f"in {age(seconds)}" if seconds > 0 else f"{age(-seconds)} ago"


def _placement(place: Placement) -> str:
    domain = ", ".join(f"{key.rsplit('/', 1)[-1]} {value}" for key, value in place.selector.items())
    where = ", ".join(filter(None, (place.flavor, domain)))
    count = place.count if place.held is None else place.held
    planned = "" if place.hosts else "to come, planned "
    return f"{count} x {place.pod_set} {planned}on {_some(sorted(place.hosts or place.nodes))} ({where})"


# Room, and its holders


def _available(row: figures.Available) -> str:
    """The devices if there are any: what is free on the flavor's nodes, and the room by quota from the leaf up."""
    free = devices(row.free)
    rooms = [
        f"{level.queue} {readable(amount, resource=resource)}"
        for level in row.headroom
        for resource, amount in level.room.items()
        if free.endswith(f" {short(resource)}")
    ]
    room = f"; room by quota: {', '.join(rooms)}" if rooms else ""
    return f"{free} on {row.flavor}{room}"


def _excluded(excluded: figures.Excluded) -> str:
    causes = ", ".join(map(_cause, excluded.by))
    told = f"{excluded.nodes} of {excluded.of} have no room for one pod{causes and f': {causes}'}"
    if domains := excluded.domains:
        told += f"; {domains.short} of {domains.of} domains of level {domains.level} are too small"
    return told


def _cause(cause: figures.Cause) -> str:
    largest = amounts_text(cause.largest)
    return f"{cause.nodes} {cause.why}" + (f" (the largest has {largest})" if largest else "")


def _holder(holder: figures.Holder, *, now: datetime) -> str:
    who = f"{holder.namespace}/{holder.name}" if holder.name else ""
    if holder.starts:
        starts = _until(holder.starts, now)
        told = f"reserved for {who or f'a job of {holder.queue}'}"
        return told + (f" in {age(starts)}" if starts > 0 else "")
    has = amount_text(holder.amount or 0, holder.resource or "")
    if holder.outside:
        owner = f"{holder.kind} {who}" if who else "other pods"
        return f"{owner} outside the queues: {has}, {plural(holder.pods or 0, 'pod')}"
    told = f"{who and who + ' in '}{holder.queue}: {has}"
    if holder.leaving:
        return f"{told}, leaving"
    if holder.held:
        return f"{told}, held"
    if holder.starting:
        told += ", admitted in this cycle"
    if holder.ends is None:
        return told
    ends = _until(holder.ends, now)
    if holder.ordered:
        return f"{told}, evicted in {age(ends)} by order"
    if ends <= 0:
        return f"{told}, overdue" if holder.runs is None else told
    basis = "" if holder.runs is None else f", {expected_by(holder.runs)}"
    return f"{told}, ends in {age(ends)}{basis}"


# When it may start, and what would help


def _reservation(held: figures.Reservation, *, now: datetime) -> str:
    begins = "what frees up is kept for it"
    if held.start is not None:
        begins = f"from {age(_until(held.start, now))} from now, if others end as expected"
    return f"{_some(held.hosts)}, {begins}; for {age(_until(held.expires, now))} at most"


def _estimate(found: figures.Estimate, *, now: datetime) -> str:
    """The range, what it rests on, and how many such ranges of the last week held."""
    begins = "now" if (first := _until(found.earliest, now)) <= 0 else f"in {age(first)}"
    ends = "or later" if found.latest is None else f"to {age(_until(found.latest, now))} from now"
    middle = "" if found.likely is None else f", likely in {age(_until(found.likely, now))}"
    record = f"fewer than {LEAST} such ranges of the last 7 d are over"
    if found.n >= LEAST:
        record = f"{found.hit_rate or 0:.0%} of such ranges held, n={found.n} in 7 d"
    basis = "; ".join(filter(None, (found.basis, record)))
    return f"starts {begins} {ends}{middle}, if nothing comes before it ({basis})"


def _change(change: figures.WouldAdmit) -> str:
    return with_evictions(change.change, change.evictions)


# Its past


def _attempt_before(evicted: figures.Evicted | None, shown: Sequence[Moment]) -> str:
    """How the last attempt ended, unless the history that is `shown` says it."""
    if evicted is None or (evicted.note and any(evicted.note in step.text for step in shown)):
        return ""
    return f"; {moment(evicted.at)}  {evicted.note or evicted.cause or 'evicted'}"


def _waited(past: Sequence[Held], *, now: float) -> str:
    """How long in all and for which reasons; "" under a second. The whole seconds sum to the total, as ends are
    rounded, not lengths, and a reason that comes to none is left out.
    """
    by_token: dict[str, float] = {}
    for row in past:
        by_token[row.token] = by_token.get(row.token, 0.0) + (now if row.end is None else row.end) - row.begin
    ends = [0, *map(round, accumulate(by_token.values()))]
    parts = ", ".join(
        f"{duration(end - begin)} {token}"
        for token, (begin, end) in zip(by_token, pairwise(ends), strict=True)
        if end > begin
    )
    return parts and f"{duration(ends[-1])}: {parts}"


def duration(seconds: int) -> str:
    """`1h2m5s`: exact, without units that are nought."""
    minutes, hours = seconds // 60, seconds // 3600
    parts = ((hours // 24, "d"), (hours % 24, "h"), (minutes % 60, "m"), (seconds % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def _until(at: datetime, now: datetime) -> float:
    """Seconds; negative where it has passed."""
    return (at - now).total_seconds()


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")

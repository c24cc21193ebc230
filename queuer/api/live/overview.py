"""The overview: is something admitted, who needs somebody, where is room, what do jobs wait for.

It tells counts and amounts, so everybody may see it; owners of pods outside the queues as each caller may have them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.controller import Controller, ControllerState, Leader
from queuer.api.deps import PREFIX, Asking
from queuer.api.http.lists import NewestCycle, newest_cycle
from queuer.api.live.attention import GRAVEST, Attention, AttentionItem, Severity, item, of_queues
from queuer.api.live.outside import OutsidePods, in_the_way, shown, told_of
from queuer.api.models import Amounts, Instant, Model, Quantity, instant
from queuer.api.queues.history import averages, steps
from queuer.api.queues.tree_cache import Present, Tree
from queuer.domain.outside import Outside, total
from queuer.domain.quantity import add, devices, format_resources
from queuer.domain.queue import ROOT
from queuer.domain.reasons import Token, Verdict, be, plural
from queuer.domain.reasons.run_sentences import LATE_START, late_starts
from queuer.domain.workload import State
from queuer.store import commands, lookup, rollup, summary
from queuer.store.rollup import Period
from queuer.store.usage import TreeView
from queuer.store.waiting import Group

router = APIRouter(prefix=PREFIX, tags=["live"])
DAY, STEP = 86_400.0, 300
MOST = 50
"""Entries of the attention list; `attentionTotal` counts all."""
_ABSENT = frozenset({ControllerState.STALE, ControllerState.AWAY, ControllerState.NEVER})
"""Nothing moves by that alone: no job is said to be stuck."""
LONG_WAIT, LONG_EVICTION = 3600.0, 30.0
"""Seconds; no job that waits or is being evicted for less is called stuck."""


class Capacity(Model):
    """A resource over all flavors. `used`: by admitted work of the queues; `outside`: by pods that no queue pays for;
    `unplaceable`: not used, on nodes that are cordoned or not ready; `reserved`: not used, and held for jobs that wait;
    `free`: all else that is allocatable.
    """

    resource: str
    allocatable: Quantity
    used: Quantity
    outside: Quantity
    reserved: Quantity
    free: Quantity
    unplaceable: Quantity


class ReasonGroup(Model):
    """Jobs that wait for one reason, as it was recorded."""

    token: Token
    verdict: Verdict
    jobs: int
    amounts: Amounts
    oldest: Instant


class Series(Model):
    """One resource of root over the last day, a value for each of `at`."""

    resource: str
    used: list[Quantity]
    guaranteed: list[Quantity]
    pending: list[Quantity]


class Overview(Model):
    """The cluster at a glance."""

    as_of: Instant
    controller: Controller
    cycle: NewestCycle | None
    counts: dict[State, int] = Field(description="Workloads that have not ended.")
    queues: int
    oldest_pending: Instant | None = Field(description="When the first of the jobs that wait was submitted.")
    oldest_admissible: Instant | None = Field(description="Since when work waits for room alone.")
    capacity: list[Capacity]
    outside: list[OutsidePods] = Field(
        description="Owners of pods that no queue pays for: the largest, the others together, system pods."
    )
    attention: list[AttentionItem]
    attention_total: int
    reasons: list[ReasonGroup]
    at: list[Instant] = Field(
        description="Starts of the steps of five minutes that `series` has values for; in others nobody led."
    )
    admitted: list[int] = Field(description="Gangs that were admitted in each of these steps.")
    evicted: list[int]
    series: list[Series]


@router.get("/overview")
async def get_overview(tree: Tree, leader: Leader, asker: Asking) -> Overview:
    """Whether something is admitted, who needs somebody, where room is, and what jobs wait for."""
    found = await tree.derived(_told)
    owners = await shown(found.outside, asker)
    own = await asker.readable(found.unstartable)
    told = [
        each for each in found.attention if each.kind is not Attention.STUCK or leader.state not in _ABSENT
    ]
    attention = [*_controller(leader), *told, *_outside(found, owners), *_unstartable(found, own)]
    attention.sort(key=lambda item: GRAVEST.index(item.kind))
    more = {"controller": leader, "attention": attention[:MOST], "attention_total": len(attention)}
    return Overview.model_validate({**found.shared, **more, "outside": owners})


@router.get("/controller")
async def get_controller(leader: Leader) -> Controller:
    """The controller alone: light enough for a page that asks every two seconds whether somebody decides."""
    return leader


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """The part that is the same for all callers of one moment: fields of the answer, and matters that need
    somebody. `in_the_way`: resources that pods outside the queues hold, and whether jobs wait for them; `unstartable`:
    by namespace how many jobs can never start.
    """

    shared: Mapping[str, Any]
    attention: Sequence[AttentionItem]
    outside: Sequence[Outside]
    in_the_way: Mapping[str, bool]
    unstartable: Mapping[str, int]


async def _told(connection: AsyncConnection, there: Present) -> _Told:
    view = there.view
    now, cycle = await lookup.now(connection), await lookup.newest_cycle(connection)
    times, series = await _series(connection, now=now)
    moved = await summary.moves(connection, since=now - DAY - STEP, step=STEP)
    capacity = _capacity(view, cycle)
    return _Told(
        outside=view.outside,
        in_the_way=dict(in_the_way(view, {resource: c["free"] for resource, c in capacity.items()})),
        attention=[
            *of_queues(view, there.origins),
            *_escalated(view),
            *await _stuck(connection, now=now),
            *await _ordered(connection, now=now),
            *_out(cycle),
            *_unmanaged(cycle),
            *_beside(await summary.beside(connection)),
        ],
        unstartable=await summary.unstartable(connection),
        shared={
            "as_of": now,
            "cycle": newest_cycle(cycle),
            "counts": await summary.states(connection),
            "queues": len(view.queues),
            "oldest_pending": view.queues[ROOT].oldest,
            "oldest_admissible": min(
                (g.since for g in view.waiting if g.admissible and g.since), default=None
            ),
            "capacity": [{"resource": resource, **amounts} for resource, amounts in capacity.items()],
            "reasons": _reasons(view.waiting),
            "at": [instant(at) for at in times],
            "admitted": [moved.get(at, (0, 0))[0] for at in times],
            "evicted": [moved.get(at, (0, 0))[1] for at in times],
            "series": series,
        },
    )


# What needs somebody


def _controller(found: Controller) -> Iterator[AttentionItem]:
    if not found.state.decides:
        # Of the other states the last sign of life says nothing.
        since = found.at.timestamp() if found.at and found.state is ControllerState.STALE else None
        yield item(Attention.CONTROLLER_STALE, found.text, since=since)


def _escalated(view: TreeView) -> Iterator[AttentionItem]:
    """Jobs that only an operator can help, by reason."""
    found = [group for group in view.waiting if group.verdict is Verdict.ESCALATE]
    if count := sum(group.jobs for group in found):
        by = Counter[str]()
        for group in found:
            by[group.token] += group.jobs
        since = min((group.since for group in found if group.since is not None), default=None)
        told = ", ".join(f"{token} {jobs}" for token, jobs in by.most_common())
        text = f"{_jobs(count, 'needs', 'need')} an operator: {told}"
        yield item(Attention.ESCALATED, text, since=since, count=count)


async def _stuck(connection: AsyncConnection, *, now: float) -> list[AttentionItem]:
    """Jobs whose eviction is not taken, jobs whose pods do not run, and jobs that wait longer than is usual.

    The usual wait is the 95th percentile of the jobs that started in the last day.
    """
    usual = (await rollup.waits(connection, ROOT, since=now - DAY, until=now)).p95
    long = max(LONG_WAIT, usual or 0.0)
    late = await summary.waiting_since(connection, now - long)
    placing = await summary.placing_since(connection, now - LATE_START)
    refused = await summary.evicted_since(connection, now - LONG_EVICTION)
    told = (
        (refused, f"{_jobs(refused.jobs, 'is', 'are')} evicted, and the API server has not taken that"),
        (late, f"{_jobs(late.jobs, 'waits', 'wait')} for room longer than is usual"),
        (placing, f"{late_starts(placing.jobs, placing.amounts)}: queuer jobs --state Admitted,Placing"),
    )
    return [
        item(Attention.STUCK, text, since=stuck.oldest, count=stuck.jobs)
        for stuck, text in told
        if stuck.jobs
    ]


def _jobs(count: int, one: str, many: str) -> str:
    """`1 job waits`, `2 jobs wait`."""
    return f"{plural(count, 'job')} {one if count == 1 else many}"


async def _ordered(connection: AsyncConnection, *, now: float) -> list[AttentionItem]:
    """Evictions that somebody has ordered for later."""
    jobs, first = await commands.all_ordered(connection)
    if first is None:
        return []
    said = f"{_jobs(jobs, 'is', 'are')} to be evicted by order, the first in {_span(first - now)}"
    return [item(Attention.EVICTIONS, said, count=jobs)]


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 3600:.0f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def _out(cycle: lookup.NewestCycle | None) -> Iterator[AttentionItem]:
    """Nodes that take no pods; a cordon is somebody's own doing."""
    told = [] if cycle is None else [(cycle.not_ready, "not ready"), (cycle.cordoned, "cordoned")]
    said = [f"{plural(n, 'node')} {be(n)} {why}" for n, why in told if n]
    if cycle is not None and said:
        free = devices({r: n for r, n in cycle.unplaceable.items() if n})
        text = " and ".join(said) + (f"; {free} are free there" if free else "")
        severity = None if cycle.not_ready else Severity.INFO
        yield item(Attention.NODES_OUT, text, count=cycle.not_ready + cycle.cordoned, severity=severity)


def _outside(found: _Told, owners: Sequence[OutsidePods]) -> Iterator[AttentionItem]:
    """Pods that no queue pays for, where they hold what a queue is guaranteed or a job lacks."""
    if resources := list(found.in_the_way):
        text = told_of(found.outside, resources, owners)
        severity = Severity.WARNING if any(found.in_the_way.values()) else Severity.INFO
        yield item(Attention.OUTSIDE, text, severity=severity)


def _unmanaged(cycle: lookup.NewestCycle | None) -> Iterator[AttentionItem]:
    """Jobs that nobody decides on, as their namespaces opted out, or never opted in."""
    if cycle is not None and (count := cycle.unmanaged):
        text = f"{plural(count, 'suspended job')} with a queue label in unmanaged namespaces: queuer doctor names them"
        yield item(Attention.UNMANAGED, text, count=count)


def _beside(count: int) -> Iterator[AttentionItem]:
    """Jobs that run although no queue let them in, as after the loss of the database."""
    if count:
        them, were = ("it", "it was") if count == 1 else ("them", "they were")
        text = f"{_jobs(count, 'runs', 'run')}, and no queue counts {them}: apply the tree that {were} in"
        yield item(Attention.OUTSIDE, text, count=count)


def _unstartable(found: _Told, own: Collection[str]) -> Iterator[AttentionItem]:
    """`own`: the namespaces whose jobs the caller may list."""
    if count := sum(found.unstartable.values()):
        yours = sum(found.unstartable[namespace] for namespace in own)
        text = f"{plural(count, 'job')} can never start as {'it is' if count == 1 else 'they are'}"
        split = f": {yours} of yours, {count - yours} of others" if yours < count else ""
        yield item(Attention.UNSTARTABLE, text + split, count=count, yours=yours)


# Figures


def _capacity(view: TreeView, cycle: lookup.NewestCycle | None) -> dict[str, dict[str, int]]:
    """By resource the amounts of a `Capacity`."""
    parts: dict[str, Mapping[str, int]] = {
        "used": {a.resource: a.used for a in view.queues[ROOT].amounts if a.flavor is None},
        "outside": total(view.outside),
        "reserved": cycle.reserved if cycle else {},
        "unplaceable": cycle.unplaceable if cycle else {},
    }
    found = dict[str, dict[str, int]]()
    for (flavor, resource), amount in sorted(view.capacity.items(), key=str):
        if flavor is None:
            taken = {name: part.get(resource, 0) for name, part in parts.items()}
            found[resource] = {"allocatable": amount, **taken, "free": max(0, amount - sum(taken.values()))}
    return found


def _reasons(waiting: Iterable[Group]) -> list[ReasonGroup]:
    """Most jobs first; those of another verdict apart from others of their token."""
    found: dict[tuple[Token, Verdict], list[Group]] = defaultdict(list)
    for group in waiting:
        found[group.token, group.verdict].append(group)
    told = [_reason(token, verdict, groups) for (token, verdict), groups in found.items()]
    return sorted(told, key=lambda group: (-group.jobs, group.token, group.verdict))


def _reason(token: Token, verdict: Verdict, groups: list[Group]) -> ReasonGroup:
    amounts: dict[str, int] = {}
    for group in groups:
        amounts = add(amounts, group.amounts)
    return ReasonGroup(
        token=token,
        verdict=verdict,
        jobs=sum(group.jobs for group in groups),
        amounts=format_resources(amounts),
        oldest=instant(min(group.oldest for group in groups)),
    )


async def _series(connection: AsyncConnection, *, now: float) -> tuple[list[float], list[Series]]:
    """Averages over five minutes of root's accounts over all flavors."""
    rows = await rollup.history(connection, ROOT, period=Period.MINUTE, since=now - DAY, until=now)
    points = {at: averages(group) for at, group in steps(rows, STEP).items()}
    names = sorted({resource for there in points.values() for resource, flavor in there if flavor is None})

    series = [
        Series.model_validate(
            {"resource": name}
            | {
                word: [there.get((name, None), {}).get(word, 0) for there in points.values()]
                for word in ("used", "guaranteed", "pending")
            }
        )
        for name in names
    ]
    return list(points), series

"""New and edited jobs: read, checked against the queues, given their place in line, written down.

Nothing that a user writes can crash this.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.landing.writes import resting
from queuer.controller.ledger.round import Round
from queuer.controller.memory.lines import Place
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.intake import check, over_max_pending
from queuer.domain.override import Override, overridden
from queuer.domain.per_user import too_large
from queuer.domain.reasons import LONGEST, Explanation, Token, simple
from queuer.domain.usable import runs_beside
from queuer.domain.workload import State, Workload
from queuer.store.tables import NotAsked


def take_in(
    changes: Round, uids: Iterable[str], *, state: ClusterState, jobs: ClusterJobs, anew: Collection[str] = ()
) -> None:
    """Read these jobs, where they wait or are new, into the round. `anew`: whose rows are written in any case."""
    new: defaultdict[tuple[str, str], list[Place]] = defaultdict(list)
    for uid in uids:
        job, known = state.jobs.get(uid), changes.live(uid)
        if job is None or job.deleting or job.unfinished or job.outcome is not None:
            continue
        if known is not None and not known.state.waiting:
            continue
        with changes.isolate(uid):
            found = read(job, known, state=state, jobs=jobs, now=changes.now)
            if found.in_line:
                own = found.workload
                found = _in_line(found, state, new[own.queue, own.namespace])
                if known is None:
                    insort(new[own.queue, own.namespace], state.lines.place(found))
            if known is None or uid in anew or not _same(known, found):
                changes.put(uid, after=found, reread=True)


def _in_line(live: Live, state: ClusterState, new: Sequence[Place]) -> Live:
    """Tell what can never start so, and what is beyond `maxPending`, bound gangs excepted. `new`: of its line, those
    that are not in memory yet.
    """
    unstartable = state.outlook.unstartable(live.workload)
    if unstartable is not None or live.unstartable:
        live = replace(live, explanation=unstartable)
    own, most = live.workload, state.rules.max_pending(live.workload.queue)
    within = state.lines.ahead(live) + bisect_left(new, state.lines.place(live)) < most
    if within or own.uid in state.bound:
        return live
    unstartable = unstartable or too_large(own, state.rules.tree)
    return replace(
        live,
        not_asked=NotAsked.OVER_MAX_PENDING,
        explanation=unstartable or _over_max_pending(own.queue, own.namespace, most),
    )


_over_max_pending = cache(over_max_pending)
"""One explanation for all of a line."""


def read(job: JobView, known: Live | None, *, state: ClusterState, jobs: ClusterJobs, now: float) -> Live:
    """The workload that a waiting job asks for, with what is wrong with it as its explanation."""
    override = None if known is None else known.override
    workload, problems = jobs.reading(job)
    workload = overridden(workload, override)
    rules, waits = state.rules, known is not None and waits_in(workload.queue, known)
    fault = check(
        workload, rules.tree, rules.topology, state.nodes.values(), priorities=jobs.facts(job).values,
        groups=job.groups, waits=waits, problems=problems,
    )  # fmt: skip
    not_asked, explanation = None, None
    if fault is not None:
        not_asked = NotAsked.DRAINING if fault.draining else NotAsked.MISCONFIGURED
        runs = not job.suspended and (known is None or known.state.waiting)
        explanation = runs_beside(fault.explanation) if runs else fault.explanation
    ask = workload.ask(job.declared)
    if problems:
        workload = overridden(jobs.bare_workload(job), override)
    if known is None:
        workload = state.estimates.estimated(workload)
    else:
        since = now if _released(known, workload, state.live.get(job.uid)) else known.workload.submitted
        learned = known.workload
        workload = replace(
            workload, submitted=since, estimate=learned.estimate, estimate_runs=learned.estimate_runs
        )
    waiting = State.HELD if workload.hold else State.QUEUED
    if explanation is None and workload.hold:
        explanation = _on_hold(override)
    if known is None:
        known = Live(workload=workload, state=waiting)
    # The first reading of a term is no edit: the row has the charge and what was learned, not what the job said.
    edited = not problems and known.asked not in (None, ask)
    if edited or (known.workload.hold and not workload.hold):
        known = replace(known, avoid={}, failures=0, rest=None)
    if not problems:
        known = replace(known, asked=ask)
    if explanation is None and workload == known.workload and known.not_asked is None:
        explanation = known.explanation  # the decision's word stands until the next one
    if explanation is None and known.rest is not None:
        explanation = resting(known)
    after = known.state if known.state is waiting else known.state.to(waiting)
    return replace(
        known, workload=workload, state=after, not_asked=not_asked, explanation=explanation, deleted=False
    )


def _released(known: Live, workload: Workload, before: Live | None) -> bool:
    """Whether a hold of its owner ends: nobody grows old on hold. `before`: as it was before a command of this round. A
    hold by an administrator costs it nothing.
    """
    held = None if before is None or before.override is None else before.override.hold
    administered = held is not None and held.value and held.administered
    return known.workload.hold and not workload.hold and not administered


def waits_in(queue: str, known: Live) -> bool:
    """Whether it has been let into this queue."""
    return known.workload.queue == queue and known.not_asked is not NotAsked.DRAINING


def _on_hold(override: Override | None) -> Explanation:
    held = None if override is None else override.hold
    if held is None or not held.value:
        return simple(Token.ON_HOLD, "held by the annotation queuer.dev/hold; remove it to release the job")
    why = f": {held.reason[:LONGEST]}" if held.reason else ""
    return simple(Token.ON_HOLD, f"held by {held.by}{why}; `queuer release` lets it go")


def _same(known: Live, found: Live) -> bool:
    return (known.workload, known.state, known.not_asked, known.explanation) == (
        found.workload, found.state, found.not_asked, found.explanation,
    )  # fmt: skip

"""Work that went on while the database fell back: a backup was restored, or a replica that lagged took over.

The controller looks for it once, when a term begins. All that runs is charged as it runs before anything is decided,
so nothing is promised twice. The API server is asked for each job that the database tells otherwise: a watch may be
behind, too. Memory takes the answers over. A job that cannot be read or corrected is quarantined, and the term begins
without it. No job is started or suspended here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from queuer.controller.intake.adoption import Adopter
from queuer.controller.intake.read import take_in
from queuer.controller.landing.settle import requeued
from queuer.controller.ledger.round import Round
from queuer.controller.logs import logger
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.term import Term
from queuer.domain.backoff import BackOff
from queuer.domain.errors import Unavailable
from queuer.domain.workload import Cause, State
from queuer.kube.client import ApiError

log = logger("restored")

AT_ONCE = 20
"""Jobs that are read from the API server at a time."""
SLICE = 250
"""Jobs that are corrected or charged in one transaction."""
BACK_OFF = BackOff(first=0.25, longest=5.0)
TRIES = 10
"""Failed answers about one job before it is quarantined, half a minute: etcd elects a leader in less."""
_AWAY = frozenset({429, 502, 503, 504})
"""HTTP statuses of an API server that is overloaded, or away behind a proxy."""
_STARTED = (State.PLACING, State.RUNNING)


async def recognise(term: Term, adopter: Adopter, *, progress: Callable[[], None]) -> None:
    """Bring what is stored in line with what runs. `progress` is called for each job that is done with.

    Waits for an API server that is away, without a sign of progress. Raises as `Term.commit_each` does.
    """
    state = term.state
    differing = [live.uid for live in state.live.values() if differs(live, state.jobs.get(live.uid))]
    fresh = await _read(term, differing, progress=progress)
    for part in _slices([*fresh]):
        progress()
        changes = Round(state.live, now=term.clock())
        for uid in part:
            with changes.isolate(uid):
                _correct(changes, state.live[uid], fresh[uid])
        await term.commit_each(changes)
    beside = [uid for uid, job in state.jobs.items() if _runs(job) and _waits(state.live.get(uid))]
    for part in _slices(beside):
        progress()
        changes = Round(state.live, now=term.clock())
        take_in(changes, part, state=state, jobs=term.jobs)
        await term.commit_each(changes)
        await adopter.look(part)


def _slices(uids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (uids[first : first + SLICE] for first in range(0, len(uids), SLICE))


def _correct(changes: Round, live: Live, job: JobView) -> None:
    if (after := corrected(live, job, now=changes.now)) is not None:
        log.warning(
            "the database lost what became of it", workload=live.uid, job=job.admission, stored=live.state
        )
        changes.put(live.uid, after=after, cause=Cause.WITHDRAWN)


def differs(live: Live, job: JobView | None) -> bool:
    """Whether a job seems to have gone on without its row: it carries another admission than the stored one."""
    placement = live.placement
    if placement is None or live.state.ended or job is None or job.deleting or job.outcome is not None:
        return False
    if job.admission == placement.id:
        return False
    # An admission whose PATCH is still to come, or an eviction, is what a job without one looks like.
    return live.state in _STARTED or (job.admission is not None and not job.suspended)


def corrected(live: Live, job: JobView, *, now: float) -> Live | None:
    """The workload as its job, read just now, says; None where the row is right.

    A job that runs goes back to its queue in the rows alone, where it is charged anew at once. One that is suspended
    was evicted: what it held is free once no pod is left.
    """
    if not differs(live, job):
        return None
    if not job.suspended:
        return requeued(live)
    return replace(live, state=live.state.to(State.EVICTING), left=now, displaced_by=frozenset())


def _runs(job: JobView) -> bool:
    return not job.suspended and not job.deleting and job.outcome is None


def _waits(live: Live | None) -> bool:
    return live is None or live.state.waiting


async def _read(term: Term, uids: Sequence[str], *, progress: Callable[[], None]) -> Mapping[str, JobView]:
    """These jobs as the API server has them now, without those that are gone or quarantined."""
    slots, found = asyncio.Semaphore(AT_ONCE), dict[str, JobView]()

    async def read(uid: str) -> None:
        async with slots:
            watched = term.state.jobs.get(uid)
            try:
                job = await _read_one(term, uid)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is the fault of this job alone
                term.quarantine({uid: error})
            else:
                if job is not None:
                    found[uid] = job
                    _remember(term.state, job, watched=watched)
            progress()

    async with asyncio.TaskGroup() as group:
        for uid in uids:
            group.create_task(read(uid), name="recognise")
    return found


def _remember(state: ClusterState, job: JobView, *, watched: JobView | None) -> None:
    """Take over what was read, which is newer than what the watch had told before. Its news of meanwhile may be newer
    still, and stand.
    """
    if state.jobs.get(job.uid) is watched and job.uid not in state.elsewhere:
        state.job_changed(job)


async def _read_one(term: Term, uid: str) -> JobView | None:
    """The job as the API server has it now; None if it is gone. Raises what still goes wrong after `TRIES` answers."""
    failures, pauses = 0, iter(BACK_OFF)
    while True:
        try:
            return await term.jobs.read(uid)
        except (ApiError, Unavailable) as error:
            failures += not _is_away(error)
            if failures == TRIES:
                raise
            log.warning("not compared with its job, tried again", workload=uid, said=str(error))
        await asyncio.sleep(next(pauses))


def _is_away(error: ApiError | Unavailable) -> bool:
    """Whether the fault lies with the API server, or with our rights, and not with the object."""
    return isinstance(error, Unavailable) or error.status in _AWAY

"""Sends what is committed to the API server: one merge PATCH per job, a bounded number at a time.

Every PATCH carries the resourceVersion that the decision saw. If the job has moved on (409), it is read
again, and only then is the epoch asked for once more. So a controller that was frozen meanwhile cannot act on
a decision that its successor has withdrawn. A withdrawal moves the resourceVersion, and it precedes the
answer. An eviction or withdrawal that met a conflict names the admission that it ends instead of a
resourceVersion. So nobody keeps a job running by writing to it all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from opentelemetry import context
from opentelemetry.context import Context

from queuer.controller.apply.made_jobs import NotMadeError
from queuer.controller.failpoints import Failpoints, Point
from queuer.controller.health.metrics import Metrics
from queuer.controller.logs import logger
from queuer.controller.memory.live import JobView
from queuer.controller.tracing import TRACER
from queuer.domain.backoff import BackOff
from queuer.domain.errors import Unavailable
from queuer.kube.client import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ThrottledError,
)
from queuer.kube.patches import PatchBody, firm_patch
from queuer.store.outbox import Entry, Result
from queuer.store.tables import EntryKind, EntryOutcome

log = logger("applier")
T = TypeVar("T")

_MOST_CONFLICTS = 20
_MOST_LOOKS = 8
"""How often it is looked again whether a job's controller has made its Jobs: 23 s in all."""
REFUSED = 30.0
"""Seconds for which a write is refused before that is told: a webhook may be starting anew."""
_POINTS = {
    EntryKind.ADMIT: Point.ADMITTED,
    EntryKind.EVICT: Point.SUSPENDED,
    EntryKind.WITHDRAW: Point.WITHDRAWN,
}


class Jobs(Protocol):
    """The jobs of the cluster, as the applier reads and writes them."""

    def wanted(self, entry: Entry) -> bool:
        """Whether an admission is still in force."""

    async def patch(self, uid: str, body: PatchBody) -> str:
        """Patch the job; returns its new resourceVersion. Raises ApiError or Unavailable."""

    async def read(self, uid: str) -> JobView | None:
        """The job as the API server has it now; None if there is none with this uid."""

    def as_decided(self, job: JobView) -> bool:
        """Whether the job still asks for what its admission gives."""

    def rebuilt(self, entry: Entry, job: JobView) -> Mapping[str, Any]:
        """The entry's PATCH for the job as it is now."""


class ConflictVerdict(StrEnum):
    """The verdict of a job that was read again, on an entry that met a conflict."""

    DONE = "done"
    AGAIN = "again"
    STALE = "stale"


def judge(entry: Entry, job: JobView, *, as_decided: bool) -> ConflictVerdict:
    """Whether an entry is already done, may be sent again for the job's new resourceVersion, or has lost its
    point.
    """
    carries = job.admission == entry.admission_id
    match entry.kind:
        case EntryKind.ADMIT:
            if carries and not job.gated:
                return ConflictVerdict.DONE
            # A job that somebody started meanwhile is sent its PATCH all the same: as an adoption it changes
            # nothing else, and as an admission the API server refuses it, for the pods are there already.
            free = (job.suspended or job.admission in (None, entry.admission_id)) and job.outcome is None
            return ConflictVerdict.AGAIN if free and as_decided else ConflictVerdict.STALE
        case EntryKind.EVICT:
            if job.gated:  # each that waits is marked, so that no older admission starts it
                return ConflictVerdict.AGAIN
            if job.suspended or (job.outcome is not None and not job.lingers):
                return ConflictVerdict.DONE
            return ConflictVerdict.AGAIN if carries or job.admission is None else ConflictVerdict.STALE
        case EntryKind.WITHDRAW:
            return ConflictVerdict.STALE if carries and not job.gated else ConflictVerdict.AGAIN


class Applier:
    """Applies entries concurrently; results are handed to `on_result` in the event loop. `on_refused` hears of one
    that is refused for long: the server's words, and for how many seconds.
    """

    def __init__(
        self,
        jobs: Jobs,
        *,
        confirm_epoch: Callable[[], Awaitable[None]],
        on_result: Callable[[Result], None],
        on_refused: Callable[[Entry, str, float], None],
        failpoints: Failpoints,
        metrics: Metrics,
        at_once: int,
    ) -> None:
        self._jobs = jobs
        self._confirm_epoch = confirm_epoch
        self._on_result, self._on_refused = on_result, on_refused
        self._refused: dict[int, float] = {}  # since when, by entry that is not through
        self._failpoints = failpoints
        self._metrics = metrics
        self._slots = asyncio.Semaphore(at_once)  # requests under way; whoever waits to try again holds none
        self._pause = Pause()
        self._queue: asyncio.Queue[tuple[Entry, Context]] = asyncio.Queue()
        self._last: dict[str, asyncio.Task[None]] = {}

    def send(self, entry: Entry) -> None:
        """Have an entry applied as soon as there is a slot, and after those of the same job. Its span belongs to what
        decided it.
        """
        self._queue.put_nowait((entry, context.get_current()))

    async def run(self) -> None:
        """Apply entries until cancelled. LeadershipLost ends it."""
        async with asyncio.TaskGroup() as group:
            while True:
                entry, cause = await self._queue.get()
                task = group.create_task(
                    self._one(entry, cause, after=self._last.get(entry.uid)), name="apply"
                )
                self._last[entry.uid] = task
                task.add_done_callback(partial(self._forget, entry.uid))

    def _forget(self, uid: str, done: asyncio.Task[None]) -> None:
        if self._last.get(uid) is done:
            del self._last[uid]

    async def _one(self, entry: Entry, cause: Context, *, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        told = {"queuer.kind": entry.kind.value, "queuer.workload": entry.uid}
        with TRACER.start_as_current_span("queuer.patch", cause, attributes=told) as span:
            result = await self.apply(entry)
            self._refused.pop(entry.seq, None)
            span.set_attribute("queuer.outcome", result.outcome.value)
            self._finish(entry, result)

    def _finish(self, entry: Entry, result: Result) -> None:
        if result.outcome not in (EntryOutcome.APPLIED, EntryOutcome.WITHDRAWN):
            self._metrics.api_errors.labels(result.outcome.value).inc()
            log.warning(
                "not applied",
                kind=entry.kind,
                workload=entry.uid,
                outcome=result.outcome,
                said=result.message,
            )
        self._on_result(result)

    async def apply(self, entry: Entry) -> Result:
        """Send one entry until its outcome is known; an admission that was taken back meanwhile is not sent.

        All entries together wait for a server that is unreachable or asks for a pause. An entry waits alone for a
        right that is missing.
        """
        body: PatchBody = entry.patch
        pauses, looks, conflicts = iter(BACK_OFF), islice(BACK_OFF, _MOST_LOOKS), 0
        while True:
            try:
                version = await self._ask(entry.uid, partial(self._patch_wanted, entry, body))
                if version is None:
                    return Result(entry=entry, outcome=EntryOutcome.WITHDRAWN)
                await self._failpoints.at(_POINTS[entry.kind])
                return Result(entry=entry, outcome=EntryOutcome.APPLIED, resource_version=version)
            except NotFoundError:
                return Result(entry=entry, outcome=EntryOutcome.GONE)
            except ConflictError as error:
                conflicts += 1
                # Only an admission has an alternative: what suspends or withdraws goes on until it is through.
                last = conflicts >= _MOST_CONFLICTS and entry.kind is EntryKind.ADMIT
                if conflicts >= _MOST_CONFLICTS:
                    await asyncio.sleep(BACK_OFF.longest)
                again = await self._after_conflict(entry, body, error, last=last)
                if isinstance(again, Result):
                    return again
                body = again
            except ForbiddenError as error:
                self._metrics.api_errors.labels("retried").inc()
                await self._wait_alone(entry, error, next(pauses))
            except (ThrottledError, Unavailable):
                self._metrics.api_errors.labels("retried").inc()
            except NotMadeError as error:
                if (seconds := next(looks, None)) is None:
                    return Result(entry=entry, outcome=EntryOutcome.INVALID, message=error.message)
                await asyncio.sleep(seconds)  # without a slot
            except ApiError as error:
                if error.status < 500 and entry.kind is EntryKind.ADMIT:
                    return Result(entry=entry, outcome=EntryOutcome.INVALID, message=error.message)
                # An eviction or withdrawal has no alternative: capacity must not be given away before it.
                await self._wait_alone(entry, error, next(pauses))

    async def _wait_alone(self, entry: Entry, error: ApiError, seconds: float) -> None:
        """Say what the server refused, and wait; other entries are sent meanwhile."""
        log.error("retrying", kind=entry.kind, workload=entry.uid, said=error.message, after=seconds)
        now = asyncio.get_running_loop().time()
        refused = now - self._refused.setdefault(entry.seq, now)
        if refused >= REFUSED:
            self._on_refused(entry, error.message, refused)
        await asyncio.sleep(seconds)

    async def _patch_wanted(self, entry: Entry, body: PatchBody) -> str | None:
        """The job's new resourceVersion; None where an admission was taken back before its turn came.

        A JSON Patch whose test fails meets a conflict, too.
        """
        if entry.kind is EntryKind.ADMIT and not self._jobs.wanted(entry):
            return None
        try:
            return await self._jobs.patch(entry.uid, body)
        except InvalidError as error:
            if isinstance(body, Mapping):
                raise
            raise ConflictError(status=error.status, reason=error.reason, message=error.message) from error

    async def _ask(self, uid: str, request: Callable[[], Awaitable[T]]) -> T:
        """Make a request about a job in a slot, once no pause is on. A pause holds for all requests, and is logged when
        it begins.
        """
        async with self._slots:
            await self._pause.over()
            try:
                answer = await request()
            except ForbiddenError:
                self._pause.answered()
                raise
            except (ThrottledError, Unavailable) as error:
                if self._pause.begin(asked=getattr(error, "retry_after", None)):
                    log.warning("all requests wait", workload=uid, said=str(error))
                raise
            except ApiError:
                self._pause.answered()
                raise
            self._pause.answered()
            return answer

    async def _after_conflict(
        self, entry: Entry, body: PatchBody, error: ApiError, *, last: bool
    ) -> Result | PatchBody:
        """The PATCH to try again with, or how it ended."""
        job = await self._read(entry.uid)
        if job is None:
            return Result(entry=entry, outcome=EntryOutcome.GONE)
        answer = judge(entry, job, as_decided=self._jobs.as_decided(job))
        if answer is ConflictVerdict.DONE:
            return Result(entry=entry, outcome=EntryOutcome.APPLIED, resource_version=job.resource_version)
        if answer is ConflictVerdict.STALE or last:
            return Result(entry=entry, outcome=EntryOutcome.CONFLICT, message=error.message)
        await self._confirm_epoch()
        again = self._jobs.rebuilt(entry, job)
        firm = entry.kind is not EntryKind.ADMIT and isinstance(body, Mapping)
        return firm_patch(again, job.object) if firm else again

    async def _read(self, uid: str) -> JobView | None:
        pauses = iter(BACK_OFF)
        while True:
            try:
                return await self._ask(uid, lambda: self._jobs.read(uid))
            except (ApiError, Unavailable) as error:
                log.warning("job not read, tried again", workload=uid, said=str(error))
                await asyncio.sleep(next(pauses))


BACK_OFF = BackOff(first=0.1, longest=10.0)
"""Seconds, where the server does not say how long."""


class Pause:
    """Doubles while the server goes on to refuse; one answer ends that."""

    def __init__(self) -> None:
        self._until = 0.0
        self._pauses = iter(BACK_OFF)

    async def over(self) -> None:
        """Wait for the end of the pause that is on, if any."""
        await asyncio.sleep(max(0.0, self._until - asyncio.get_running_loop().time()))

    def begin(self, *, asked: float | None = None) -> bool:
        """A request was refused; `asked`: the seconds that the server wants. Returns whether no pause was on.

        Those that were under way with it are the same refusal.
        """
        now = asyncio.get_running_loop().time()
        is_first = now >= self._until
        if is_first:
            self._until = now + next(self._pauses)
        self._until = max(self._until, now + (asked or 0.0))
        return is_first

    def answered(self) -> None:
        """The server takes requests again."""
        self._pauses = iter(BACK_OFF)

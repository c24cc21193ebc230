"""The Jobs that the controller of a queued job makes. They are read with it, pinned before it is started, and
suspended where that controller has left them running. Pods that it has left are deleted after that: else they would
be made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from queuer.controller.memory.pods import PodView
from queuer.kube.client import Client, ConflictError, InvalidError, NotFoundError
from queuer.kube.decoding import decoder_of
from queuer.kube.kinds import JOB, JobKind, Made, object_path
from queuer.kube.kinds.row import Carrier
from queuer.kube.made import PINS, job_patch
from queuer.kube.objects import JOBS, PODS, Job
from queuer.kube.template import Spec
from queuer.kube.versions import Form

_job_of = decoder_of(Job)


class NotMadeError(InvalidError):
    """Not all Jobs are made yet: its controller may be behind, as after a burst of new jobs."""


class MadeJobs:
    """Reads and pins them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def with_them(self, kind: JobKind, found: Any) -> Any:
        """A decoded job with the Jobs that the API server has of it."""
        if kind.made is None:
            return found
        carrier = None if kind.made.carrier is None else await self._carrier(kind.made.carrier, found)
        known = kind.made.given(found, jobs=[], carrier=carrier)
        return kind.made.given(known, jobs=await self._of(kind.made, known), carrier=carrier)

    async def _carrier(self, carrier: Carrier, found: Any) -> Any:
        try:
            body = await self._client.get(object_path(carrier.kind, found.metadata))
        except NotFoundError:
            return None
        made = decoder_of(carrier.kind.type)(body)
        return made if made.metadata.is_controlled_by(found.metadata.uid) else None

    async def pin(self, kind: JobKind, found: Any, patch: Mapping[str, Any]) -> None:
        """Give them the pins of a patch that is about to start `found`. Raises ApiError, Unavailable.

        ConflictError: one has changed meanwhile. NotMadeError; InvalidError: one has pods.
        """
        pins: Mapping[str, Spec] | None = patch.get(PINS)
        if kind.made is None or pins is None:
            return
        for job in await self._all(kind.made, found):
            body = job_patch(job, pins.get(kind.made.pod_set(job.metadata), {}))
            if body is None:
                continue
            if not JOB.quiet(job):
                said = f"its Job {job.metadata.name} is not suspended, or has pods yet"
                raise InvalidError(status=422, reason="Invalid", message=said)
            path = object_path(JOB, job.metadata)
            if self._client.last_form is Form.REDUCED and JOB.fixed(job):
                await self._loosen(path, job, body)
            await self._client.merge_patch(path, body, resource=JOBS.plural)

    async def suspend(self, kind: JobKind, found: Any) -> None:
        """Suspend what a suspended job has made and its controller has left running. Raises ApiError, Unavailable.

        Jobs are known by who controls them, whatever their labels.
        """
        if not kind.makes_jobs:
            return
        owners = {found.metadata.uid}
        carrier = None if kind.made is None else kind.made.carrier
        if carrier is not None and found.carrier is not None:
            owners.add(found.carrier.metadata.uid)
            await self._suspend(carrier.kind, found.carrier)
        async for page in self._client.pages(JOBS.inside(found.metadata.namespace)):
            for job in map(_job_of, page.items or ()):
                if any(map(job.metadata.is_controlled_by, owners)):
                    await self._suspend(JOB, job)

    async def _suspend(self, kind: JobKind, found: Any) -> None:
        if kind.suspended(found) or kind.outcome(found) is not None:
            return
        body: Any = True
        for key in reversed(kind.suspend_path):
            body = {key: body}
        with suppress(NotFoundError, ConflictError):  # it is gone, and another may have its name
            path = object_path(kind, found.metadata)
            body = {"metadata": {"uid": found.metadata.uid}, **body}
            await self._client.merge_patch(path, body, resource=kind.resource.plural)

    async def _loosen(self, path: str, job: Job, body: dict[str, Any]) -> None:
        first = {"metadata": body["metadata"], "status": {"startTime": None}}
        version = await self._client.merge_patch(f"{path}/status", first, resource=f"{JOBS.plural}/status")
        body["metadata"] = {**body["metadata"], "resourceVersion": version}

    async def _all(self, made: Made, found: Any) -> list[Job]:
        jobs, expected = await self._of(made, found), made.expected(found)
        if len(jobs) < expected:
            said = f"its controller has made {len(jobs)} of {expected} Jobs: its Events say why"
            raise NotMadeError(status=422, reason="Invalid", message=said)
        return jobs

    async def _of(self, made: Made, found: Any) -> list[Job]:
        """Those that say that it controls them: a label anybody may write."""
        holder = made.holder(found)
        if holder is None:
            return []
        meta = holder.metadata
        pages = self._client.pages(JOBS.inside(meta.namespace), selector=made.selector(meta))
        jobs = [_job_of(raw) async for page in pages for raw in page.items or ()]
        return [job for job in jobs if job.metadata.is_controlled_by(meta.uid)]


_COUNTED = "batch.kubernetes.io/job-tracking"
LEFT = "left"
"""Key of a patch: the uids of pods to delete, by name."""


def left_patch(pods: Iterable[PodView]) -> dict[str, Any]:
    """The patch that takes the pods down that hold something and that nobody has told to go."""
    return {LEFT: {pod.name: pod.uid for pod in pods if pod.stays}}


class LeftPods:
    """Deletes pods that the controller of an evicted job left alone for `QUEUER_LEFT_PODS`. A round commits to those
    that it names by uid: a controller that leads no more can delete none but pods of the evicted run.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def delete(self, namespace: str, patch: Mapping[str, Any]) -> None:
        """Delete the pods of a patch with the grace that they have. Raises ApiError, Unavailable.

        One that is gone, or whose name another has by now, needs nothing. Like the Job controller when it suspends,
        this takes a pod out of the count of its Job first: else it would count as failed.
        """
        for name, uid in patch[LEFT].items():
            path = PODS.path(name, namespace=namespace)
            with suppress(NotFoundError, ConflictError):
                await self._client.remove_finalizer(path, _COUNTED, uid=uid, resource=PODS.plural)
                await self._client.delete(path, uid=uid, resource=PODS.plural)

"""Objects that the controllers of queued jobs make: a job is read with its Jobs, and with what carries its templates.

Their changes come one by one, by thousands for a large job. The job is heard of again once for all of a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from queuer.controller.memory.pods import Maker
from queuer.controller.memory.state import ClusterState
from queuer.kube.kinds import JobKind, Made, maker_of
from queuer.kube.objects import Job
from queuer.kube.reflector import Change, ChangeKind

_MOMENT = 0.05
_LATE = 3.0
"""Seconds in which a controller makes the carrier of a new job: until then its absence is no fault of the owner."""
Heard = Callable[[Change[Any]], None]


class Listener(Protocol):
    """Hears of a job again."""

    def again(self, kind: JobKind, uid: str, *, late: bool = False) -> None:
        """Something that was made of this job has changed. `late`: the carrier has had its time."""


class MadeObjects:
    """Those that are known."""

    def __init__(self, state: ClusterState, listener: Listener) -> None:
        self._state, self._listener = state, listener
        # By namespace and uid of the one that made them, and by their own.
        self._jobs: dict[tuple[str, str], dict[str, Job]] = {}
        # By namespace and uid of the job that each is made of; and kind and uid of that job by uid of the carrier.
        self._carriers: dict[tuple[str, str], Any] = {}
        self._carried: dict[str, tuple[JobKind, str]] = {}
        self._changed: set[str] = set()  # uids of those that are to be heard of again

    def job(self, kind: JobKind, made: Made) -> Heard:
        """Hear of the Jobs that a kind's controller makes. An owner reference is a claim: it counts inside its
        namespace alone.
        """

        def heard(change: Change[Job]) -> None:
            job, parent = change.object, change.object.metadata.controller
            if parent is None or (parent.api_version, parent.kind) != (kind.api_version, kind.name):
                return
            meta = job.metadata
            key = meta.namespace, parent.uid
            if change.kind is ChangeKind.DELETED:
                self._jobs.get(key, {}).pop(meta.uid, None)
                self._state.pods.unmade(meta.uid)
                if not self._jobs.get(key):
                    self._jobs.pop(key, None)
            else:
                self._jobs.setdefault(key, {})[meta.uid] = job
                maker = Maker(uid=parent.uid, pod_set=made.pod_set(meta))
                self._state.made(meta.uid, maker, namespace=meta.namespace)
            if change.kind is ChangeKind.DELETED or change.old is None or _bears(change.old) != _bears(job):
                self._soon(kind, parent.uid)

        return heard

    def carrier(self, kind: JobKind, carried: JobKind) -> Heard:
        """Hear of the objects of kind `carried` that have the templates of a kind's jobs."""

        def heard(change: Change[Any]) -> None:
            meta, parent = change.object.metadata, change.object.metadata.controller
            if parent is None or parent.name != meta.name or maker_of(carried, meta) is not kind:
                return
            key = meta.namespace, parent.uid
            if change.kind is not ChangeKind.DELETED:
                self._carriers[key], self._carried[meta.uid] = change.object, (kind, parent.uid)
                self._state.made(meta.uid, Maker(uid=parent.uid), namespace=meta.namespace)
            elif self._carried.pop(meta.uid, None) is not None:
                self._state.pods.unmade(meta.uid)
                known = self._carriers.get(key)
                if known is not None and known.metadata.uid == meta.uid:
                    del self._carriers[key]
            self._soon(kind, parent.uid)

        return heard

    def given_to(self, kind: JobKind, found: Any, *, late: bool) -> tuple[Any, bool]:
        """A decoded job with what is known of it, and whether its carrier is still to come: then it is heard again."""
        if kind.made is None:
            return found, False
        meta = found.metadata
        carrier = self._carriers.get((meta.namespace, meta.uid))
        holder = meta if carrier is None else carrier.metadata
        jobs = self._jobs.get((meta.namespace, holder.uid), {})
        unfinished = kind.made.carrier is not None and carrier is None and not late
        if unfinished:
            asyncio.get_running_loop().call_later(_LATE, partial(self._again, kind, meta.uid, late=True))
        return kind.made.given(found, jobs=jobs.values(), carrier=carrier), unfinished

    def _soon(self, kind: JobKind, uid: str) -> None:
        if uid not in self._changed:
            self._changed.add(uid)
            asyncio.get_running_loop().call_later(_MOMENT, self._again, kind, uid)

    def _again(self, kind: JobKind, uid: str, *, late: bool = False) -> None:
        self._changed.discard(uid)
        self._listener.again(*self._carried.get(uid, (kind, uid)), late=late)


def _bears(job: Job) -> object:
    """The part of a Job that bears on the one that made it: not how many of its pods are active."""
    return job.spec, msgspec.structs.replace(job.status, active=min(job.status.active, 1))

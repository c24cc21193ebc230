"""Pods that queue by themselves, put together to groups as they come. A run of a group is a job to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import msgspec

from queuer.domain.keys import USER
from queuer.domain.workload import Workload
from queuer.kube.kinds.pod import (
    POD,
    PodGroup,
    group_name,
    group_of,
    is_coming,
    is_gated,
    runs_of,
)
from queuer.kube.objects import Pod

_MOMENT = 0.05
"""Seconds in which the pods of a group come together: it is looked at once for all of them."""
_ALSO = 100
"""Pods by which the moment grows: a look costs as much as there are."""
_ANEW = 10.0
"""Seconds that a group without pods is kept: a StatefulSet makes one anew only once the last is gone."""
_Key = tuple[str, str]


class Listener(Protocol):
    """Hears of runs, as of jobs of any kind."""

    def came(self, group: PodGroup) -> None:
        """A run is there, or has changed."""

    def went(self, uid: str) -> None:
        """Nothing is left of a run."""


class PodGroups:
    """The runs of all groups. `listed`: whether all pods were heard once; before, a run would not know its oldest."""

    def __init__(self, listener: Listener, *, listed: Callable[[], bool]) -> None:
        self._listener, self._listed = listener, listed
        self._pods: dict[_Key, dict[str, Pod]] = {}
        self._runs: dict[_Key, dict[str, PodGroup]] = {}
        self._due: set[_Key] = set()
        self._key_of: dict[str, _Key] = {}  # where a pod was put, by uid: labels and owners can change

    def put(self, pod: Pod) -> None:
        """A pod that queues by itself came or changed."""
        key, uid = _key(pod), pod.metadata.uid
        if self._key_of.get(uid, key) != key:
            self.remove(uid)
        self._key_of[uid] = key
        self._pods.setdefault(key, {})[uid] = pod
        self._soon(key)

    def remove(self, uid: str) -> None:
        """A pod is no more, or does not queue by itself any more, if it ever did."""
        key = self._key_of.pop(uid, None)
        if key is not None:
            self._pods.get(key, {}).pop(uid, None)
            self._soon(key)

    def of(self, namespace: str) -> Iterator[PodGroup]:
        """The runs of a namespace."""
        for (where, _), runs in self._runs.items():
            if where == namespace:
                yield from runs.values()

    def look(self) -> None:
        """Look at once at all that is new: whoever begins to lead must know every job."""
        for key in list(self._due):
            self._look(key)

    def recall(self, known: Mapping[str, Workload]) -> None:
        """Runs that the database has, by uid, but for those that are over. Called once when a term begins.

        Pods that were made anew have no label yet. The last leader knew of which run they are. This process knows it
        by their group and user, where a controller makes them. A group that was made by hand has the pod that named
        it. A run of which no pod is there just now is over.
        """
        self.look()
        there = {uid for runs in self._runs.values() for uid in runs}
        for uid in known.keys() - there:
            runs = self._runs.get((known[uid].namespace, known[uid].name), {})
            unknown = (run for run in runs.values() if run.metadata.uid not in known)
            if (new := next((run for run in unknown if _is_known(run, known[uid])), None)) is not None:
                del runs[new.metadata.uid]
                self._listener.went(new.metadata.uid)
                runs[uid] = group_of(uid, new.pods)
                self._listener.came(runs[uid])

    def _soon(self, key: _Key) -> None:
        if key not in self._due:
            self._due.add(key)
            if self._listed():
                pause = _MOMENT * (1 + len(self._pods.get(key, ())) / _ALSO)
                asyncio.get_running_loop().call_later(pause, self._look, key)

    def _look(self, key: _Key) -> None:
        if key not in self._due:
            return  # `look` was first
        self._due.discard(key)
        before = self._runs.pop(key, {})
        pods = self._pods.get(key, {})
        waiting = next((uid for uid, run in before.items() if _goes_on(run, pods)), None)
        after = {run.metadata.uid: run for run in runs_of(pods.values(), waiting=waiting)}
        if not after:
            after = {uid: self._emptied(key, run) for uid, run in before.items() if run.stays}
        if after:
            self._runs[key] = after
        if not pods:
            self._pods.pop(key, None)
        for uid in before.keys() - after.keys():
            self._listener.went(uid)
        for uid, run in after.items():
            if uid not in before or _bears(before[uid]) != _bears(run):
                self._listener.came(run)

    def _emptied(self, key: _Key, run: PodGroup) -> PodGroup:
        """The run without a pod, for as long as its controller may make them anew."""
        if run.pods:
            asyncio.get_running_loop().call_later(_ANEW, self._give_up, key, run.metadata.uid)
        return msgspec.structs.replace(run, pods=[])

    def _give_up(self, key: _Key, uid: str) -> None:
        runs = self._runs.get(key, {})
        if uid in runs and not runs[uid].pods:
            del runs[uid]
            if not runs:
                del self._runs[key]
            self._listener.went(uid)


def _goes_on(run: PodGroup, pods: Mapping[str, Pod]) -> bool:
    """Whether a run that was known is one still: of pods that nobody makes anew, one must be left."""
    left = any(pod.metadata.uid in pods and is_coming(pods[pod.metadata.uid]) for pod in run.pods)
    user = run.metadata.annotations.get(USER, "")
    anew = run.stays and any(_takes_place(pod, user) for pod in pods.values())
    return POD.outcome(run) is None and (left or anew)


def _is_known(new: PodGroup, stored: Workload) -> bool:
    """Whether a run that nobody knows is one that the database has: with the pod that gave it its uid, or made anew."""
    return new.is_new and any(
        pod.metadata.uid == stored.uid or _takes_place(pod, stored.user) for pod in new.pods
    )


def _takes_place(pod: Pod, user: str) -> bool:
    """Whether a controller made it, for the user of the run."""
    return pod.metadata.controller is not None and pod.metadata.annotations.get(USER, "") == user


def _key(pod: Pod) -> _Key:
    """A group by its name, a single pod by its uid, which is no name."""
    meta = pod.metadata
    name = group_name(meta)
    return meta.namespace, f"/{meta.uid}" if name is None else name


def _bears(run: PodGroup) -> object:
    """The part of a run that bears on its workload: of pods that were started not how they come to run."""
    return [
        (p.metadata.uid, p.metadata.labels, p.metadata.annotations, p.metadata.deletion_timestamp, p.ended,
         p.metadata.resource_version if is_gated(p) else "")
        for p in run.pods
    ]  # fmt: skip

"""Pods that the controller of an evicted job left where they were. Queuer deletes them itself.

Suspending a job is a request: the controller of its kind deletes the pods. One that is dead, old or broken never does,
and the pods would hold their nodes without end. Landing finds them after `QUEUER_LEFT_PODS`. A round commits to the
deletion of the pods that it names by uid, and the applier comes here with it. A controller that leads no more can
delete none but these, and those are of the evicted run.

Jobs that the job has made are suspended before (`made_jobs`): their own controller lives, and would make the pods anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from queuer.controller.memory.pods import PodView
from queuer.kube.client import Client, ConflictError, NotFoundError
from queuer.kube.objects import PODS

_COUNTED = "batch.kubernetes.io/job-tracking"
LEFT = "left"
"""Key of a patch: the uids of pods to delete, by name."""


def left_patch(pods: Iterable[PodView]) -> dict[str, Any]:
    """The patch that takes the pods down that hold something and that nobody has told to go."""
    return {LEFT: {pod.name: pod.uid for pod in pods if pod.stays}}


class LeftPods:
    """Deletes them."""

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

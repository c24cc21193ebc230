"""Pods that the controller of an evicted job left where they were. Queuer deletes them itself.

A job that is suspended is a request: the controller of its kind deletes the pods. One that is dead, old or broken never
does, and the pods would hold their nodes without end. Landing finds them after `QUEUER_LEFT_PODS`. A round commits to
the deletion of the pods that it names by uid, and the applier comes here with it. A controller that leads no more can
delete none but these, and those are of the evicted run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from queuer.controller.memory.pods import PodView
from queuer.kube.client import Client, ConflictError, NotFoundError
from queuer.kube.objects import PODS

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

        One that is gone, or whose name another has by now, needs nothing.
        """
        for name, uid in patch[LEFT].items():
            with suppress(NotFoundError, ConflictError):
                path = PODS.path(name, namespace=namespace)
                await self._client.delete(path, uid=uid, resource=PODS.plural)

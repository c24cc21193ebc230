"""Pods that queue by themselves: read as groups, opened by a PATCH each, deleted to evict them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from queuer.domain.keys import ADMISSION, POD_GROUP, QUEUE
from queuer.kube.client import Client, ConflictError, NotFoundError
from queuer.kube.decoding import decoder_of
from queuer.kube.gated import STARTS, ChangedError, deleted, pod_patches
from queuer.kube.kinds import queues_by_itself
from queuer.kube.kinds.pod import PodGroup, group_name, runs_of
from queuer.kube.objects import PODS, Pod

_pod_of = decoder_of(Pod)


class GatedPods:
    """Reads and writes them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def patch(self, group: PodGroup, body: Mapping[str, Any]) -> str:
        """Write to its pods one after another; returns the last resourceVersion. Raises ApiError, Unavailable.

        A failure leaves the rest as they were: the same again writes to these alone. A pod that is gone needs nothing.
        Pods that run are read afresh: memory does not follow each change of theirs, and the last may have been started
        a moment ago.
        """
        if STARTS not in body and ADMISSION in body["metadata"]["annotations"]:
            group = await self.read(group) or msgspec.structs.replace(group, pods=[])
        version = group.metadata.resource_version
        for pod in deleted(group, body):
            with suppress(NotFoundError, ConflictError):  # another has its name
                await self._client.delete(_path(pod), uid=pod.metadata.uid, resource=PODS.plural)
        for pod, change in _changes(group, body):
            with suppress(NotFoundError):
                version = await self._client.merge_patch(_path(pod), change, resource=PODS.plural)
        return version

    async def read(self, known: PodGroup) -> PodGroup | None:
        """The run as the API server has it now; None where no pod of it is left. Raises ApiError, Unavailable."""
        meta = known.metadata
        name = group_name(meta)
        selector = f"{POD_GROUP}={name}" if POD_GROUP in meta.labels else QUEUE
        pages = self._client.pages(PODS.inside(meta.namespace), selector=selector)
        found = [_pod_of(raw) async for page in pages for raw in page.items or ()]
        own = {pod.metadata.uid for pod in known.pods}
        pods = [
            pod for pod in found
            if queues_by_itself(pod.metadata)
            and (pod.metadata.uid in own if name is None else group_name(pod.metadata) == name)
        ]  # fmt: skip
        return next((run for run in runs_of(pods, waiting=meta.uid) if run.metadata.uid == meta.uid), None)


def _changes(group: PodGroup, body: Mapping[str, Any]) -> list[tuple[Pod, dict[str, Any]]]:
    try:
        return list(pod_patches(group, body))
    except ChangedError as error:
        raise ConflictError(status=409, reason="Conflict", message=str(error)) from error


def _path(pod: Pod) -> str:
    return PODS.path(pod.metadata.name, namespace=pod.metadata.namespace)

"""Writes to pods that queue by themselves: what a patch of such a workload means for each of its pods.

A patch has `metadata.annotations` as any other. With `STARTS` it opens gates. With `TAKES_BACK` it deletes the pods of
an admission and writes on those that were not started. A PATCH of that admission that is under way meets a conflict
then. With neither it writes annotations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from queuer.domain.keys import ADMISSION, QUEUE, USER, WORKLOAD
from queuer.kube.kinds.pod import GATE, PodGroup, admission_id, is_coming, is_gated, pod_set_of
from queuer.kube.objects import Pod
from queuer.kube.template import merge_diff, scheduling_of

STARTS, DECIDED, TAKES_BACK = "starts", "decided", "takesBack"
"""Keys of a patch: by pod set `{count, spec}`, pods that run at once and their scheduling part; the versions of the
pods that were decided on, by uid; an admission's id."""


class ChangedError(Exception):
    """A pod is not the one that was decided on."""


def decided_on(group: PodGroup) -> dict[str, str]:
    """The pods that may be started, with their versions. One that asks for something else than the others of its set,
    which run, may not. Nor may one of another queue or user than those that run, who would pay for it.
    """
    coming = [pod for pod in group.pods if is_coming(pod)]
    running = {pod_set_of(pod.metadata): _asks(pod) for pod in coming if not is_gated(pod)}
    payers = {_payer(pod) for pod in coming if not is_gated(pod)}
    return {
        pod.metadata.uid: pod.metadata.resource_version
        for pod in filter(is_gated, coming)
        if running.get(pod_set_of(pod.metadata), _asks(pod)) == _asks(pod)
        and (not payers or _payer(pod) in payers)
    }


def _payer(pod: Pod) -> object:
    return pod.metadata.labels.get(QUEUE), pod.metadata.annotations.get(USER)


def _asks(pod: Pod) -> object:
    spec = pod.spec
    return spec.containers, spec.init_containers, spec.resources, spec.overhead, spec.runtime_class_name


def pod_patches(group: PodGroup, patch: Mapping[str, Any]) -> Iterator[tuple[Pod, dict[str, Any]]]:
    """The merge patches of single pods, each a compare-and-set. Nothing is left to do where there are none.

    Raises ChangedError where another pod than those that were decided on would be started.
    """
    annotations = patch["metadata"]["annotations"]
    for pod in _written(group, patch):
        body: dict[str, Any] = {
            "metadata": {
                "uid": pod.metadata.uid,
                "resourceVersion": _version(pod, patch),
                "annotations": dict(annotations),
            }
        }
        if STARTS in patch:
            wanted = patch[STARTS][pod_set_of(pod.metadata)]["spec"]
            gates = [gate for gate in pod.spec.scheduling_gates if gate.get("name") != GATE]
            body["spec"] = {"schedulingGates": gates, **merge_diff(scheduling_of(pod.spec), wanted)}
        if not is_gated(pod) or STARTS in patch:
            body["metadata"]["labels"] = {WORKLOAD: group.metadata.uid}
        yield pod, body


def _version(pod: Pod, patch: Mapping[str, Any]) -> str:
    if STARTS not in patch or DECIDED not in patch:
        return pod.metadata.resource_version
    version = patch[DECIDED].get(pod.metadata.uid)
    if version is None:
        raise ChangedError(f"pod {pod.metadata.name} came after the decision")
    return str(version)


def deleted(group: PodGroup, patch: Mapping[str, Any]) -> Iterator[Pod]:
    """Pods that a patch takes back: those of the admission that it names, and those that ran before anyone asked."""
    if (admission := patch.get(TAKES_BACK)) is not None:
        for pod in group.pods:
            if is_coming(pod) and not is_gated(pod) and admission_id(pod) in (admission, None):
                yield pod


def _written(group: PodGroup, patch: Mapping[str, Any]) -> Iterator[Pod]:
    coming = [pod for pod in group.pods if is_coming(pod)]
    if STARTS in patch:
        yield from _opened(coming, patch[STARTS])
    elif TAKES_BACK in patch:
        yield from filter(is_gated, coming)
    elif ADMISSION in patch["metadata"]["annotations"]:
        yield from (pod for pod in coming if not is_gated(pod))
    else:
        yield from (pod for pod in coming if pod.metadata.uid == group.first.uid)


def _opened(coming: list[Pod], starts: Mapping[str, Any]) -> Iterator[Pod]:
    """The oldest pods that have gates, so many of each set as its size leaves beside those that run."""
    running = Counter(pod_set_of(pod.metadata) for pod in coming if not is_gated(pod))
    for pod in filter(is_gated, coming):
        name = pod_set_of(pod.metadata)
        if name in starts and running[name] < starts[name]["count"]:
            running[name] += 1
            yield pod

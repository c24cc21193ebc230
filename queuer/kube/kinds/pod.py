"""Pods that queue by themselves: one alone, or a group that is admitted together.

A pod cannot be suspended. A policy gives it a scheduling gate when it is created, and one PATCH takes the gate away and
pins it. So a Deployment, a StatefulSet, a notebook or a workflow engine queues its pods by a label in its template.
Evicted pods are deleted: one that has a controller comes back gated, a bare one does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import msgspec

from queuer.domain.errors import FieldProblem
from queuer.domain.keys import (
    ADMISSION,
    GROUPS,
    POD_GROUP,
    POD_GROUP_SIZE,
    POD_SET,
    PRIORITY_CLASS,
    QUEUE,
    USER,
    WORKLOAD,
)
from queuer.domain.reasons import plural
from queuer.domain.workload import State
from queuer.kube.kinds.job import MAIN
from queuer.kube.kinds.row import JobKind, Role
from queuer.kube.objects import PODS, Meta, Pod, PodTemplate, Resource, Struct, TemplateMeta

GATE = QUEUE
"""The scheduling gate of a pod that waits in a queue, named as the label that asks for it."""
LARGEST = 1_000
"""Pods of a group."""
LEADERWORKERSETS = Resource(group="leaderworkerset.x-k8s.io", version="v1", plural="leaderworkersets")
_LWS = "leaderworkerset.sigs.k8s.io"
GROUP_LABELS = tuple(f"{_LWS}/{name}" for name in ("name", "group-index", "worker-index"))
"""Labels by which a pod of a LeaderWorkerSet has a group without naming one."""


class PodGroup(Struct, frozen=True):
    """The pods of one run of a group, or one pod alone. `metadata` is that of the workload: see `group_of`."""

    metadata: Meta
    pods: list[Pod] = msgspec.field(default_factory=list)

    @property
    def first(self) -> Meta:
        """The pod on which is told what concerns all."""
        pods = [pod for pod in self.pods if is_coming(pod)] or self.pods
        return pods[0].metadata if pods else self.metadata

    @property
    def comes_back(self) -> bool:
        """Whether pods that go are made anew."""
        return self.metadata.controller is not None

    @property
    def stays(self) -> bool:
        """Whether pods that are made anew belong to it: else one alone is another workload."""
        return self.comes_back and group_name(self.metadata) is not None

    @property
    def is_new(self) -> bool:
        """Whether no pod of it was started: none says of which run it is."""
        return not any(WORKLOAD in pod.metadata.labels for pod in self.pods)

    @property
    def is_started(self) -> bool:
        """Whether pods of it run, or are to."""
        return any(is_coming(pod) and not is_gated(pod) for pod in self.pods)


def is_gated(pod: Pod) -> bool:
    """Whether it waits in a queue."""
    return any(gate.get("name") == GATE for gate in pod.spec.scheduling_gates)


def is_coming(pod: Pod) -> bool:
    """Whether it runs, or is still to run."""
    return not pod.ended and pod.metadata.deletion_timestamp is None


def group_name(meta: Meta) -> str | None:
    """The group of a pod, None for one alone. Those of a LeaderWorkerSet have one by themselves."""
    name, index = meta.labels.get(f"{_LWS}/name"), meta.labels.get(f"{_LWS}/group-index")
    own = None if name is None or index is None else f"{name}-{index}"
    return meta.labels.get(POD_GROUP, own)


def pod_set_of(meta: Meta) -> str:
    """The pod set of a pod that queues by itself."""
    index = meta.labels.get(f"{_LWS}/worker-index")
    own = MAIN if index is None else "leader" if index == "0" else "workers"
    return meta.labels.get(POD_SET, own)


def admission_id(pod: Pod) -> str | None:
    """The admission that a pod was started by."""
    try:
        found = json.loads(pod.metadata.annotations.get(ADMISSION, "{}"))
    except (ValueError, RecursionError):
        return None
    said = found.get("id") if isinstance(found, dict) else None
    return said if isinstance(said, str) else None


def group_of(uid: str, pods: Iterable[Pod]) -> PodGroup:
    """The workload of some pods of one group, at least one. It is being deleted once all that have not ended are, and
    nobody makes them anew.

    Labels and annotations are those of one of its pods. The admission is that of all that have started and stay, or if
    none does, of those that go.
    """
    found = sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))
    there = [pod for pod in found if not pod.ended]
    going = [pod.metadata.deletion_timestamp for pod in there]
    meta = next((pod for pod in found if is_coming(pod)), found[0]).metadata
    annotations = dict(meta.annotations)
    started = [pod for pod in there if not is_gated(pod)]
    if started := [pod for pod in started if is_coming(pod)] or started:
        alike = len({admission_id(pod) for pod in started}) == 1
        annotations[ADMISSION] = started[0].metadata.annotations.get(ADMISSION, "{}") if alike else "{}"
    group = PodGroup(
        metadata=msgspec.structs.replace(
            meta, uid=uid, name=group_name(meta) or meta.name, annotations=annotations,
            creation_timestamp=found[0].metadata.creation_timestamp,
            deletion_timestamp=None,
        ),
        pods=found,
    )  # fmt: skip
    if group.stays or not going or not all(going):
        return group
    meta = msgspec.structs.replace(group.metadata, deletion_timestamp=max(map(str, going)))
    return msgspec.structs.replace(group, metadata=meta)


def group_like(pod: Pod) -> PodGroup:
    """The workload of a new pod, gated as policy gates it; of a group, as if all its pods were like this one."""
    gated = msgspec.structs.replace(pod.spec, scheduling_gates=[*pod.spec.scheduling_gates, {"name": GATE}])
    new = Pod(metadata=pod.metadata, spec=gated)
    return group_of(pod.metadata.uid, [new] * (_size(group_of("", [new])) or 1))


def runs_of(pods: Iterable[Pod], *, waiting: str | None) -> list[PodGroup]:
    """The runs of one group. A pod that was started says of which it is; the others are of the one that is not over.

    `waiting`: the uid of the run that was known to go on, so that it stays itself when its pods are made anew.
    """
    runs: dict[str, list[Pod]] = {}
    new: list[Pod] = []
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.uid)):
        uid = pod.metadata.labels.get(WORKLOAD)
        (new if uid is None else runs.setdefault(uid, [])).append(pod)
    groups = {uid: group_of(uid, own) for uid, own in runs.items()}
    if new:
        going_on = [uid for uid, group in groups.items() if goes_on(group)]
        uid = next(iter(going_on), waiting if waiting not in groups and waiting else new[0].metadata.uid)
        groups[uid] = group_of(uid, [*runs.get(uid, ()), *new])
    return list(groups.values())


def goes_on(run: PodGroup) -> bool:
    """Whether a pod that comes now belongs to this run."""
    return _outcome(run) is None and (run.stays or any(map(is_coming, run.pods)))


def _size(group: PodGroup) -> int | None:
    """How many pods it has as its owner says; None = that is no number."""
    if group_name(group.metadata) is None:
        return 1
    notes = group.metadata.annotations
    text = notes.get(POD_GROUP_SIZE, notes.get(f"{_LWS}/size", ""))
    return int(text) if text.isdecimal() and len(text) < 9 and 1 <= int(text) <= LARGEST else None


def _roles(group: PodGroup) -> tuple[Role, ...]:
    sets: dict[str, list[Pod]] = {}
    for pod in group.pods:
        sets.setdefault(pod_set_of(pod.metadata), []).append(pod)
    return tuple(_role(name, sets[name]) for name in sorted(sets))


def _role(name: str, pods: list[Pod]) -> Role:
    """A pod set. Its template is a pod as its owner wrote it, if one is left that was not started."""
    coming = [pod for pod in pods if is_coming(pod)]
    shown = next(filter(is_gated, coming), next(iter(coming), pods[0]))
    return Role(
        name=name,
        declared=len(coming),
        template=_template(shown),
        count_path=(f"annotation {POD_GROUP_SIZE}",),
        template_path=(f"pod {shown.metadata.name}",),
        resizable=False,
    )


def _template(pod: Pod) -> PodTemplate:
    gates = [gate for gate in pod.spec.scheduling_gates if gate.get("name") != GATE]
    spec = msgspec.structs.replace(pod.spec, node_name="", scheduling_gates=gates)
    meta = TemplateMeta(labels=pod.metadata.labels, annotations=pod.metadata.annotations)
    return PodTemplate(metadata=meta, spec=spec)


def _refused(group: PodGroup) -> Iterator[FieldProblem]:
    if group.is_started or _outcome(group) is not None:
        return
    size = _size(group)
    counted = sum(is_coming(pod) or pod.status.phase == "Succeeded" for pod in group.pods)
    if size is None:
        hint = f"write the number of its pods, 1 to {LARGEST}"
        yield FieldProblem(field=f"annotation {POD_GROUP_SIZE}", message="is no number of pods", hint=hint)
    elif counted != size:
        hint = "create the others" if counted < size else "delete those that are too many, or raise it"
        message = f"says {size}, and the group has {plural(counted, 'pod')}"
        yield FieldProblem(field=f"annotation {POD_GROUP_SIZE}", message=message, hint=hint)
    if any(f"{_LWS}/exclusive-topology" in pod.metadata.annotations for pod in group.pods):
        message = "places the leaders by rules of its own"
        hint = "leave it out; queuer.dev/topology-required keeps each group in one domain"
        yield FieldProblem(field=f"annotation {_LWS}/exclusive-topology", message=message, hint=hint)
    for key in (QUEUE, PRIORITY_CLASS, POD_GROUP_SIZE, USER, GROUPS):
        said = {
            {**pod.metadata.labels, **pod.metadata.annotations}.get(key)
            for pod in group.pods
            if is_coming(pod)
        }
        if len(said) > 1:
            message, hint = "is not the same on all pods of the group", "write the same on all"
            yield FieldProblem(field=key, message=message, hint=hint)
    for name, pods in _by_set(group):
        specs = [_template(pod).spec for pod in pods]
        if any(spec != specs[0] for spec in specs):
            message, hint = (
                f"{name!r} has pods that ask for different things",
                f"tell them apart by {POD_SET}",
            )
            yield FieldProblem(field=f"label {POD_SET}", message=message, hint=hint)


def _by_set(group: PodGroup) -> list[tuple[str, list[Pod]]]:
    sets: dict[str, list[Pod]] = {}
    for pod in filter(is_coming, group.pods):
        sets.setdefault(pod_set_of(pod.metadata), []).append(pod)
    return sorted(sets.items())


def _outcome(group: PodGroup) -> State | None:
    """It ends with its pods, once so many have ended by themselves. One that is deleted has a last phase as well."""
    stay = [pod for pod in group.pods if pod.metadata.deletion_timestamp is None]
    if any(not pod.ended for pod in group.pods) or len(stay) < (_size(group) or 1):
        return None
    succeeded = sum(pod.status.phase == "Succeeded" for pod in stay)
    return State.SUCCEEDED if succeeded >= (_size(group) or 1) else State.FAILED


def _left(group: PodGroup) -> int:
    """Pods that go of a group that stays are waited for; else those that are there are all."""
    if not group.stays:
        return sum(map(is_coming, group.pods))
    return max(0, (_size(group) or 0) - sum(pod.status.phase == "Succeeded" for pod in group.pods))


def _deadline(group: PodGroup) -> int | None:
    """The longest that its pods may run, where all say so."""
    said = [pod.spec.active_deadline_seconds for pod in group.pods]
    stated = [seconds for seconds in said if seconds is not None]
    return max(stated) if stated and len(stated) == len(said) else None


POD = JobKind(
    name="Pod",
    api_version="v1",
    resource=PODS,
    type=PodGroup,
    operators=(),
    manager="",
    suspend_path=(),
    gates=lambda group: sum(is_gated(pod) and is_coming(pod) for pod in group.pods),
    suspended=lambda group: not group.is_started,
    quiet=lambda group: not group.is_started,
    outcome=_outcome,
    left=_left,
    sized=lambda group: not group.stays,
    comes_back=lambda group: group.comes_back,
    roles=_roles,
    deadline=_deadline,
    pods=lambda uid, name: f"{WORKLOAD}={uid}",
    pod_labels=(),
    pod_label=POD_SET,
    refused=_refused,
    example={},
)

"""All kinds of job; the job of a pod, and the pods of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queuer.domain.keys import QUEUE, WORKLOAD
from queuer.kube.decoding import decoder_of
from queuer.kube.kinds.job import JOB, MAIN
from queuer.kube.kinds.jobset import JOBSET
from queuer.kube.kinds.kubeflow import KUBEFLOW
from queuer.kube.kinds.mpijob import MPIJOB
from queuer.kube.kinds.pod import POD, PodGroup, group_of, pod_set_of
from queuer.kube.kinds.ray import RAYCLUSTER, RAYJOB
from queuer.kube.kinds.row import JobKind, JobObject
from queuer.kube.kinds.trainjob import TRAINJOB
from queuer.kube.objects import Meta, Pod

KINDS: tuple[JobKind, ...] = (JOB, JOBSET, TRAINJOB, RAYJOB, RAYCLUSTER, *KUBEFLOW, MPIJOB, POD)
"""All kinds of job that Queuer manages."""
BY_NAME: Mapping[str, JobKind] = {kind.name: kind for kind in KINDS}
_LONGEST_LABEL = 63
_BY_OWNER = {(kind.api_version, kind.name): kind for kind in KINDS if kind.gates is None}
"""Kinds whose controllers make pods. A pod makes none: an owner that is a pod says nothing of who pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """That a pod belongs to a job of a kind that we manage: the job's uid and the pod set."""

    owner: str
    pod_set: str


def member_of(pod: Pod) -> Member | None:
    """The job and pod set of a pod, None for pods of nobody that we know.

    The controlling owner decides, but for pods of an object that another job's controller made. These carry the uid of
    that other in our label, and labels of that controller. Our label alone tells of a pod that queues by itself,
    and of an orphaned one, whose job was deleted. Every admission puts it on the pods or their templates. Nothing of
    this can be forged or taken off where a namespace has opted in (policies/guard-pods.yaml, guard-made.yaml), and it
    does not count across namespaces (`PodIndex.of`).
    """
    meta, owner = pod.metadata, pod.metadata.controller
    uid = meta.labels.get(WORKLOAD)
    kind = None if owner is None else _BY_OWNER.get((owner.api_version, owner.kind))
    if owner is not None and kind is not None:
        maker = _maker(kind, meta) if uid and uid != owner.uid else None
        if maker is not None:
            return Member(owner=str(uid), pod_set=_pod_set(maker, meta))
        return Member(owner=owner.uid, pod_set=_pod_set(kind, meta))
    if not uid:
        return None
    if QUEUE in meta.labels:
        return Member(owner=uid, pod_set=pod_set_of(meta))
    kind = next((k for k in KINDS if k.pod_label is not None and k.pod_label in meta.labels), JOB)
    return Member(owner=uid, pod_set=_pod_set(kind, meta))


def queues_by_itself(meta: Meta) -> bool:
    """Whether a pod is a workload, alone or with its group: it is not of a job that can be queued itself."""
    owner = meta.controller
    return QUEUE in meta.labels and (owner is None or (owner.api_version, owner.kind) not in _BY_OWNER)


def _maker(kind: JobKind, meta: Meta) -> JobKind | None:
    """The kind whose controller made the owner of a pod, an object of `kind`, by labels that agree.

    Where the mark has another uid, or is not on pods, our label is alone. It is kept true on the templates of Jobs, and
    on those of their carrier, too.
    """
    uid = meta.labels.get(WORKLOAD)
    if child := next((k for k in KINDS if kind.name in k.children and k.pod_label in meta.labels), None):
        return child
    found = [(k, k.made) for k in KINDS if kind is JOB and k.made is not None and k.pod_label in meta.labels]
    own = (k for k, made in found if made.certain and meta.labels.get(made.mark) == uid)
    return next(own, next((k for k, made in found if not made.certain), None))


def maker_of(kind: JobKind, meta: Meta) -> JobKind | None:
    """The kind whose controller made an object of `kind`, which is then never queued by itself."""
    owner = meta.controller
    maker = None if owner is None else _BY_OWNER.get((owner.api_version, owner.kind))
    if maker is not None and kind.name in maker.children:
        return maker
    if maker is None or maker.made is None:
        return None
    carrier = maker.made.carrier
    return maker if kind is (JOB if carrier is None else carrier.kind) else None


def _pod_set(kind: JobKind, meta: Meta) -> str:
    return MAIN if kind.pod_label is None else meta.labels.get(kind.pod_label, "").lower()


def pod_selectors(kind: JobKind, *, uid: str, name: str) -> tuple[str, ...]:
    """Label selectors that find every pod of a job: by our label, and as its controller does where it was started
    beside the queue.
    """
    # A name too long for a label is that of a job that never got a pod; the API server would refuse the selector.
    by_controller = (kind.pods(uid, name),) if len(name) <= _LONGEST_LABEL else ()
    return tuple(dict.fromkeys((f"{WORKLOAD}={uid}", *by_controller)))


def decoded_job(kind: JobKind, body: bytes) -> JobObject:
    """One object as a job; a pod as if it queued alone. Raises MsgspecError."""
    found: JobObject = decoder_of(kind.type if kind.gates is None else Pod)(body)
    return group_of(found.metadata.uid, [found]) if isinstance(found, Pod) else found


def told_on(job: JobObject) -> Meta:
    """The object on which its owner is told something: of a group, one of its pods."""
    return job.first if isinstance(job, PodGroup) else job.metadata


def object_path(kind: JobKind, meta: Meta) -> str:
    """API path of a job object."""
    return kind.resource.path(meta.name, namespace=meta.namespace)

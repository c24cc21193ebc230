"""The next step of a job's reader: one sentence for each token, with a command that works as it stands.

Kubernetes does not let containers, counts and names of a job change: such a job is deleted and created again. Labels
and annotations of the job itself are read again when they change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from queuer.domain.keys import Where, annotation_names
from queuer.domain.queue import ROOT
from queuer.domain.reasons.changes import ChangeKind, JobChange

_OURS = annotation_names(Where.OWNER)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedJob:
    """The job that a next step is for. `params`: of its primary reason; `changes`: those that would let it start.

    `commanded`: held by a command, not by the job itself.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    params: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[JobChange] = ()
    commanded: bool = False

    @property
    def kubectl(self) -> str:
        """The object as kubectl takes it after a verb."""
        return f"{self.kind.lower()} {self.name} -n {self.namespace}"


# The job or its queue is wrong


def mend(job: AdvisedJob) -> str:
    """Labels and annotations can be mended in place, fields of the pods can not."""
    if job.params.get("runs"):
        return (
            f"nothing has to be done to the job; apply the tree in which {job.queue} serves namespace {job.namespace}: "
            "queuer apply -f TREE; the queue counts it from then on"
        )
    steps = [_mend(job, params) for params in (job.params, *job.params.get("also", ()))]
    again = _again(job, "what the reason names mended")
    if again in steps:
        return again
    return (" && " if all(step.startswith("kubectl") for step in steps) else "; ").join(dict.fromkeys(steps))


def _mend(job: AdvisedJob, params: Mapping[str, Any]) -> str:
    """The step for one fault."""
    near = next(iter(params.get("nearest") or ()), None)
    if "fields" in params:
        return _mend_fields(job, [str(name) for name in params["fields"]])
    if "maxRuntime" in params:
        return f"kubectl annotate {job.kubectl} --overwrite queuer.dev/max-runtime={params['maxRuntime']}"
    if "highest" in params:
        return f"kubectl label {job.kubectl} --overwrite queuer.dev/priority-class={near or 'CLASS'}"
    if "level" in params:
        key = f"queuer.dev/{str(params.get('field', 'topology-required')).partition(' ')[0]}"
        level = near or next(iter(params.get("levels") or ()), None)
        return f"kubectl annotate {job.kubectl} " + (f"--overwrite {key}={level}" if level else f"{key}-")
    if near is not None:
        return f"kubectl label {job.kubectl} --overwrite queuer.dev/queue={near}"
    if "draining" in params:
        return f"wait until {params['draining']} is open again; who administers it can say when"
    if "user" in params:
        return f"ask who administers {params['queue']} to let {params['user'] or 'its user'} use it"
    if "queue" in params:
        whose = (
            params["queue"] if "namespace" in params else ROOT
        )  # a queue that is missing has no administrator
        return f"ask who administers {whose} to let namespace {job.namespace} use a queue"
    return _again(job, "what the reason names mended")


def _mend_fields(job: AdvisedJob, fields: Sequence[str]) -> str:
    verbs, steps = {"annotation": "annotate", "label": "label"}, []
    for kind, names in groupby(sorted(set(fields)), key=lambda name: name.partition(" ")[0]):
        if kind not in verbs:
            return _again(job, "what the reason names mended")
        # An annotation that is not ours can only be taken off.
        keys = [name.partition(" ")[2] for name in names]
        words = [f"{key}=VALUE" if kind == "label" or key.startswith(_OURS) else f"{key}-" for key in keys]
        steps.append(f"kubectl {verbs[kind]} {job.kubectl} --overwrite {' '.join(words)}")
    return " && ".join(steps)


def _again(job: AdvisedJob, how: str) -> str:
    return f"kubectl delete {job.kubectl}, then create it again with {how}"


def ask_less(job: AdvisedJob) -> str:
    """The job is larger than what there could ever be."""
    if "asked" in job.params or any(change.kind is ChangeKind.PREEMPTIBLE for change in job.changes):
        return f"kubectl annotate {job.kubectl} --overwrite queuer.dev/preemptible=true"
    most = job.params.get("left") or job.params.get("limit")
    size = "no" if most == "0" else f"at most {most}"
    what = f"{size} {job.params['resource']}" if most and "resource" in job.params else "less"
    whose = "" if job.params.get("live") else f"; or ask who administers {job.params.get('queue', job.queue)}"
    return _again(job, what) + whose


def fit_flavor(job: AdvisedJob) -> str:
    """No flavor of its queue accepts its pods."""
    return _again(job, f"selectors and tolerations of a flavor that {job.queue} allows")


# The job waits for room


def wait_for_quota(job: AdvisedJob) -> str:
    """A limit is reached."""
    queue = job.params.get("queue", job.queue)
    if "perUser" in job.params:
        return f"wait; what {job.params['user']} runs has to end first: queuer jobs -q {queue}"
    return (
        _change(job)
        or f"wait; queuer queue show {queue} says what is used; who administers it may raise the limit"
    )


def wait_for_place(job: AdvisedJob) -> str:
    """No domain has room for it."""
    if job.params.get("unstartable") and not job.changes:
        return _again(job, "fewer or smaller pods, or a wider topology level")
    return _change(job) or f"wait; queuer why {job.name} -n {job.namespace} names who holds the room"


def _change(job: AdvisedJob) -> str:
    """The first change after which it would start, if one was found."""
    if not job.changes:
        return ""
    change, annotate = job.changes[0], f"kubectl annotate {job.kubectl}"
    match change.kind:
        case ChangeKind.LEVEL:
            key = "queuer.dev/topology-required"
            return f"{annotate} --overwrite {key}={change.level}" if change.level else f"{annotate} {key}-"
        case ChangeKind.PREEMPTIBLE:
            return f"{annotate} --overwrite queuer.dev/preemptible=true"
        case ChangeKind.COUNT if job.params.get("unstartable"):
            return _again(job, change.text)
        case ChangeKind.COUNT:  # a job that waits for others is not given up for it
            return f"wait; with {change.text} it would start now"
        case ChangeKind.LIMITS:
            return f"ask who administers these queues for {change.text}"
        case ChangeKind.END:
            return f"wait until {change.text}"


def wait_in_line(job: AdvisedJob) -> str:
    """Another job goes first. If that one can never start, nothing is wrong with this job."""
    params = job.params
    named = f"queuer why {params['name']} -n {params['namespace']}" if "name" in params else ""
    if params.get("headUnstartable"):
        return named or f"ask who administers {params.get('ownerQueue', job.queue)} about the job before it"
    if "maxPending" in params:
        return "wait; fewer waiting jobs of this namespace in this queue bring it nearer"
    if named:
        return f"wait; {named} says what that waits for"
    return f"wait; queuer queue show {params.get('ownerQueue', job.queue)}"


def wait(job: AdvisedJob) -> str:
    """There is nothing to do."""
    return f"wait; the next cycle tells more: queuer why {job.name} -n {job.namespace}"


# Somebody holds it, or an operator is needed


def resume_queue(job: AdvisedJob) -> str:
    """Its queue is held or drains: what the job says about itself changes nothing."""
    closed = job.params.get("closed") or [job.params.get("queue", job.queue)]
    return f"{' && '.join(f'queuer queue resume {queue}' for queue in closed)}   (by who administers it)"


def release(job: AdvisedJob) -> str:
    """The job is held. Its own annotation does not beat a command."""
    if job.commanded:
        return f"queuer release {job.kind.lower()}/{job.name} -n {job.namespace}"
    return f"kubectl annotate {job.kubectl} queuer.dev/hold-"


def show_job(job: AdvisedJob) -> str:
    """An operator has to look at the job."""
    return f"kubectl describe {job.kubectl}; show it to who operates the cluster"


def show_nodes(job: AdvisedJob) -> str:
    """An operator has to look at the nodes."""
    return "kubectl get nodes; show it to who operates the cluster"


def show_controller(job: AdvisedJob) -> str:
    """An operator has to look at the controller."""
    faults = {
        "away": "API server does not answer",
        "unguarded": "admission policies are missing or changed, or whose Kubernetes version Queuer refuses",
    }
    fault = faults.get(str(job.params.get("state")), "controller is down")
    return f"nothing starts: show it to who operates the cluster, whose {fault}"


# The job does not wait


def look_at(job: AdvisedJob, *, runs: bool) -> str:
    """Its pods if it `runs`, else its object."""
    if runs:
        return f"kubectl get pods -n {job.namespace} -l queuer.dev/workload={job.uid} -o wide"
    return f"kubectl describe {job.kubectl}"

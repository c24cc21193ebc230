"""The next step of a job's reader: what to do as a sentence, and the command that does it.

A command runs in a shell as it stands and is one that the reader may give. There is none where no command leads
forward. Kubernetes does not let containers, counts and names of a job change: such a job is deleted and created again.
Labels and annotations of the job itself are read again when they change.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import prod
from typing import Any

from queuer.domain.keys import (
    HOLD,
    MANAGED,
    MAX_RUNTIME,
    MIN_COUNT,
    PREEMPTIBLE,
    PREFIX,
    PRIORITY_CLASS,
    QUEUE,
    TOPOLOGY_REQUIRED,
    WORKLOAD,
    Sort,
)
from queuer.domain.quantity import Resources, amount_text, parse_quantity, short
from queuer.domain.queue import ROOT
from queuer.domain.reasons.amounts import moment, plural
from queuer.domain.reasons.changes import ChangeKind, JobChange

_PATIENCE = "24h"
"""For how long the reader waits for the end of another job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """`do`: a sentence, "" = there is nothing to do. `command`: what does it, or shows more; None = nothing does."""

    do: str = ""
    command: str | None = None

    def after(self, sentence: str) -> str:
        """The sentence, and then what there is to do: for readers who have no command line of ours."""
        ended = sentence if sentence.endswith((".", "?")) else f"{sentence}."
        return f"{ended} {self.do[0].upper()}{self.do[1:]}." if self.do else sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The rights of who reads: to change the job, and the queues on its path that the reader may change."""

    updates: bool = True
    administers: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedJob:
    """The job that a next step is for. `params`: of its primary reason, times in seconds or as REST has them.
    `changes`: those that would let it start.

    `pods`: by pod set the least count of pods, and the amounts of each. `commanded`: held by a command, not by the job
    itself. `deleted`: its object is gone. `group`: it is several pods, without an object of its name. `shrinks`: its
    kind can run with fewer pods than it declares.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    params: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[JobChange] = ()
    pods: Mapping[str, tuple[int, Resources]] = field(default_factory=dict)
    commanded: bool = False
    deleted: bool = False
    group: bool = False
    shrinks: bool = False
    reader: Reader = Reader()

    @property
    def reference(self) -> tuple[str, ...]:
        """The job as a verb of `queuer` takes it."""
        return f"{self.kind.lower()}/{self.name}", "-n", self.namespace

    def kubectl(self, verb: str, *words: str) -> str | None:
        """A command on the object, where there is one."""
        if self.group:
            return None
        return shlex.join(["kubectl", verb, self.kind.lower(), self.name, "-n", self.namespace, *words])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """A label or annotation of the job, and the value that it is to have; "" = it is taken off."""

    sort: Sort
    key: str
    value: str = ""

    @property
    def word(self) -> str:
        return f"{self.key}={self.value}" if self.value else f"{self.key}-"

    @property
    def text(self) -> str:
        to = f"set {self.sort} {self.key} to {self.value}"
        return to if self.value else f"take {self.sort} {self.key} off"


# The job or its queue is wrong


def mend(job: AdvisedJob) -> NextStep:
    """Labels and annotations can be mended in place, fields of the pods can not."""
    if job.params.get("runs"):
        where = f"a tree in which {job.queue} serves namespace {job.namespace}"
        return NextStep(do=f"leave the job as it is and apply {where}: the queue counts it from then on")
    found = [_mend(job, params) for params in (job.params, *job.params.get("also", ()))]
    edits = [step for steps in found if not isinstance(steps, str) for step in steps]
    others = list(dict.fromkeys(steps for steps in found if isinstance(steps, str)))
    if _ANEW in others:
        return _again(job, "what the reason names mended")
    return _edit(job, *edits, also=others)


_ANEW = "create it again"


def _mend(job: AdvisedJob, params: Mapping[str, Any]) -> Sequence[_Edit] | str:
    """The remedy of one fault: edits, or the person to ask."""
    near = next(iter(params.get("nearest") or ()), "")
    if "fields" in params:
        return _mend_fields([str(name) for name in params["fields"]], params.get("values") or {})
    if "maxRuntime" in params:
        return [_Edit(sort=Sort.ANNOTATION, key=MAX_RUNTIME, value=params["maxRuntime"])]
    if "highest" in params:
        if not near:
            return f"ask who administers {params.get('queue', job.queue)} to allow a PriorityClass"
        return [_Edit(sort=Sort.LABEL, key=PRIORITY_CLASS, value=near)]
    if "level" in params:
        key = f"{PREFIX}{str(params.get('field', 'topology-required')).partition(' ')[0]}"
        level = near or next(iter(params.get("levels") or ()), "")
        return [_Edit(sort=Sort.ANNOTATION, key=key, value=level)]
    if near:
        return [_Edit(sort=Sort.LABEL, key=QUEUE, value=near)]
    if "user" in params:
        return f"ask who administers {params['queue']} to let {params['user'] or 'its user'} use it"
    if "queue" in params:  # a queue that is missing has no administrator
        whose = params["queue"] if "namespace" in params else ROOT
        return f"ask who administers {whose} to let namespace {job.namespace} use a queue"
    return _ANEW


def _mend_fields(fields: Sequence[str], values: Mapping[str, str]) -> Sequence[_Edit] | str:
    """Edits, if all of these fields are labels and annotations of which a legal value is known."""
    steps = []
    for name in sorted({*fields, *values}):
        sort, _, key = name.partition(" ")
        if sort not in tuple(Sort):
            return _ANEW
        if name not in values:
            return f"mend {name} as the reason says"
        steps.append(_Edit(sort=Sort(sort), key=key, value=values[name]))
    return steps


def _edit(job: AdvisedJob, *edits: _Edit, also: Sequence[str] = ()) -> NextStep:
    """Edits of the job's labels and annotations, for who may make them; and what else is to be done."""
    verbs = {Sort.ANNOTATION: "annotate", Sort.LABEL: "label"}
    by_sort = {sort: [each.word for each in edits if each.sort is sort] for sort in verbs}
    commands = [
        job.kubectl(verbs[sort], "--overwrite", *dict.fromkeys(words))
        for sort, words in by_sort.items()
        if words
    ]
    may = [command for command in commands if command is not None and job.reader.updates]
    texts = list(dict.fromkeys(each.text for each in edits))
    whose = [] if job.reader.updates or not texts else [f"ask who owns {job.namespace}/{job.name} to"]
    do = "; ".join([*([" ".join([*whose, ", and ".join(texts)])] if texts else []), *also])
    return NextStep(do=do, command=" && ".join(may) or None)


def _again(job: AdvisedJob, how: str, *, otherwise: str = "") -> NextStep:
    return NextStep(do=f"delete the job and create it again with {how}{otherwise}")


def _preemptible(job: AdvisedJob) -> NextStep:
    return _edit(job, _Edit(sort=Sort.ANNOTATION, key=PREEMPTIBLE, value="true"))


def ask_less(job: AdvisedJob) -> NextStep:
    """The job is larger than what there could ever be."""
    if "asked" in job.params or any(change.kind is ChangeKind.PREEMPTIBLE for change in job.changes):
        return _preemptible(job)
    if "nearest" in job.params:
        near = next(iter(job.params["nearest"]), None)
        instead = f"{near} instead of" if near else "no"
        return _again(job, f"{instead} {job.params['resource']}")
    most = job.params.get("left") or job.params.get("limit")
    what = "less"
    if most and "resource" in job.params:
        resource = job.params["resource"]
        what = f"no {short(resource)}" if most == "0" else _at_most(job, str(most), resource)
    queue = job.params.get("queue", job.queue)
    whose = "" if job.params.get("live") else f", or ask who administers {queue} for more"
    return _again(job, what, otherwise=whose)


def _at_most(job: AdvisedJob, most: str, resource: str) -> str:
    """The pods that fit of the set that asks for most, beside those of the others; else the amount alone. No pod is
    larger than the largest node.
    """
    node = job.params.get("largest", {}).get(resource)
    sets = {name: (count, per[resource]) for name, (count, per) in job.pods.items() if per.get(resource)}
    if sets:
        name = max(sets, key=lambda key: prod(sets[key]))
        rest = sum(prod(pods) for other, pods in sets.items() if other != name)
        per, left = sets[name][1], parse_quantity(most, resource=resource) - rest
        where = f" in {name}" if len(sets) > 1 else ""
        largest = per if node is None else parse_quantity(str(node), resource=resource)
        if left >= per <= largest:
            return f"at most {plural(left // per, 'pod')} of {amount_text(per, resource)}{where}"
        if left > 0:
            return f"pods of at most {amount_text(min(left, largest), resource)}{where}"
    return f"at most {amount_text(most, resource)}"


def fit_flavor(job: AdvisedJob) -> NextStep:
    """No flavor of its queue accepts its pods."""
    return _again(job, f"selectors and tolerations of a flavor that {job.queue} allows")


# The job waits for room


def wait_for_quota(job: AdvisedJob) -> NextStep:
    """A limit is reached. That of the live capacity nobody can raise."""
    queue = job.params.get("queue", job.queue)
    if "perUser" in job.params:
        command = shlex.join(["queuer", "jobs", "-q", queue, "--state", "Running"])
        return NextStep(do=f"wait until something that {job.params['user']} runs has ended", command=command)
    if (step := _change(job)) is not None:
        return step
    if job.params.get("live"):
        return NextStep(do="wait until others end: the cluster is full")
    if "resourceQuota" in job.params:
        raises = f"who administers namespace {job.namespace} may raise the ResourceQuota"
        return NextStep(do=f"wait until others end; {raises}")
    do = f"wait until others end; who administers {queue} may raise the limit"
    return NextStep(do=do, command=shlex.join(["queuer", "queue", "show", queue]))


def wait_for_place(job: AdvisedJob) -> NextStep:
    """No domain has room for it."""
    if job.params.get("unstartable") and not job.changes:
        size = job.params if "largest" not in job.params else {}
        fewer = "fewer or " if size.get("count", 1) > 1 else ""
        wider = ", or a wider topology level" if "level" in size else ""
        return _again(job, f"{fewer}smaller pods{wider}")
    return _change(job) or NextStep(do="wait until who holds the room has ended")


def _change(job: AdvisedJob) -> NextStep | None:
    """The first change after which it would start, None if none was found."""
    if not job.changes:
        return None
    change = job.changes[0]
    match change.kind:
        case ChangeKind.LEVEL:
            return _edit(job, _Edit(sort=Sort.ANNOTATION, key=TOPOLOGY_REQUIRED, value=change.level or ""))
        case ChangeKind.PREEMPTIBLE:
            return _preemptible(job)
        case ChangeKind.COUNT if job.params.get("unstartable"):
            return _again(job, change.text)
        case ChangeKind.COUNT:  # a job that waits for others is not given up for it
            return _smaller(job, change)
        case ChangeKind.LIMITS:
            own = all(limit.queue in job.reader.administers for limit in change.limits)
            return NextStep(do=f"{'set' if own else 'ask who administers these queues for'} {change.text}")
        case ChangeKind.END:
            return NextStep(do=f"wait until {change.text}", command=_until_end(change.job))


def _smaller(job: AdvisedJob, change: JobChange) -> NextStep:
    """It waits, or runs with fewer pods, where its kind can and the reader may say so."""
    now = f"with {change.text} it would start now"
    if not (job.shrinks and job.reader.updates):
        return NextStep(do=f"wait; {now}")
    step = _edit(
        job, _Edit(sort=Sort.ANNOTATION, key=f"{MIN_COUNT}{change.pod_set}", value=str(change.count))
    )
    return replace(step, do=f"wait, or {step.do}: {now}")


def _until_end(other: Mapping[str, Any]) -> str | None:
    """The command that waits for the end of another job, if the reader may know it. An eviction is no end of its."""
    if "name" not in other or other.get("ordered"):
        return None
    words = ["queuer", "wait", other["name"], "-n", other["namespace"], "--for", "finished"]
    return shlex.join([*words, "--timeout", _PATIENCE])


def wait_in_line(job: AdvisedJob) -> NextStep:
    """Another job goes first. If that one can never start, nothing is wrong with this job."""
    params = job.params
    why = (
        shlex.join(["queuer", "why", params["name"], "-n", params["namespace"]]) if "name" in params else None
    )
    owner = params.get("ownerQueue", job.queue)
    if params.get("headUnstartable"):
        whose = "the owner of the job before it" if why else f"who administers {owner}"
        return NextStep(do=f"ask {whose} to change, hold or delete that job", command=why)
    if "maxPending" in params:
        return NextStep(do="wait; fewer waiting jobs of this namespace in this queue bring it nearer")
    if why:
        return NextStep(do="wait until the job before it has started", command=why)
    return NextStep(do="wait", command=shlex.join(["queuer", "queue", "show", owner]))


def wait(job: AdvisedJob) -> NextStep:
    """There is nothing to do."""
    if "retryAt" in job.params:
        return NextStep(do=f"wait: it is considered again from {moment(job.params['retryAt'])}")
    return NextStep(do="wait: the next cycle tells more")


# Somebody holds it, or an operator is needed


def resume_queue(job: AdvisedJob) -> NextStep:
    """Its queue is held or drains, or its namespace opted out: what the job says about itself changes nothing."""
    if "unmanagedSince" in job.params:
        return NextStep(do=f"ask who administers namespace {job.namespace} to label it {MANAGED}=true again")
    closed = [row["queue"] for row in job.params.get("closed") or ()] or [job.queue]
    queues = " and ".join(closed)
    if not all(queue in job.reader.administers for queue in closed):
        return NextStep(do=f"wait, or ask who administers {queues} to resume it")
    commands = (shlex.join(["queuer", "queue", "resume", queue, "-y"]) for queue in closed)
    return NextStep(do=f"resume {queues}", command=" && ".join(commands))


def release(job: AdvisedJob) -> NextStep:
    """The job is held. Its own annotation does not beat a command."""
    if not job.commanded:
        return _edit(job, _Edit(sort=Sort.ANNOTATION, key=HOLD))
    if not (job.reader.updates or job.queue in job.reader.administers):
        return NextStep(do=f"ask who administers {job.queue} to release it")
    return NextStep(do="release it", command=shlex.join(["queuer", "release", *job.reference, "-y"]))


def show_job(job: AdvisedJob) -> NextStep:
    """An operator has to look at the job, unless its owner forgot a volume."""
    if claim := job.params.get("claim"):
        return NextStep(
            do=f"create PersistentVolumeClaim {claim} in namespace {job.namespace}, or name another one"
        )
    return NextStep(do="show the job to who operates the cluster", command=job.kubectl("describe"))


def show_nodes(job: AdvisedJob) -> NextStep:
    """An operator has to look at the nodes."""
    return NextStep(do="ask who operates the cluster to bring nodes back", command="queuer topo")


def show_controller(job: AdvisedJob) -> NextStep:
    """An operator has to look at the controller."""
    faults = {
        "away": "the API server does not answer",
        "unguarded": "the admission policies are missing or changed, or Queuer refuses the Kubernetes version",
        "failing": "its decisions fail",
    }
    fault = faults.get(str(job.params.get("state")), "the controller is down")
    return NextStep(do=f"tell who operates the cluster: nothing starts, as {fault}")


# The job does not wait


def save_work(at: float | datetime, *, never: str = "") -> NextStep:
    """Its eviction is ordered for that time. `never`: why it could not start again after that."""
    after = f"it can never start again as it is: {never.removesuffix('.')}" if never else ""
    after = after or "it waits in its queue with its old submit time"
    return NextStep(do=f"save its work before {moment(at)}: its pods end then, and {after}")


def look_at(job: AdvisedJob, *, runs: bool) -> NextStep:
    """Its pods if it `runs`, its past if it is gone, else its object."""
    if job.deleted:
        return NextStep(command=shlex.join(["queuer", "events", *job.reference]))
    if runs:
        pods = ["kubectl", "get", "pods", "-n", job.namespace, "-l", f"{WORKLOAD}={job.uid}", "-o", "wide"]
        return NextStep(command=shlex.join(pods))
    return NextStep(command=job.kubectl("describe"))

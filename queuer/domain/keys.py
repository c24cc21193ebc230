"""Every label and annotation under `queuer.dev/`: who writes it, where, and what it says.

All code takes their names from here; docs/reference/labels.md is made from the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "queuer.dev/"
QUEUE = "queuer.dev/queue"
PRIORITY_CLASS = "queuer.dev/priority-class"
TOPOLOGY_REQUIRED = "queuer.dev/topology-required"
TOPOLOGY_PREFERRED = "queuer.dev/topology-preferred"
MAX_RUNTIME = "queuer.dev/max-runtime"
PREEMPTIBLE = "queuer.dev/preemptible"
HOLD = "queuer.dev/hold"
MIN_COUNT = "queuer.dev/min-count."
POD_GROUP = "queuer.dev/pod-group"
POD_GROUP_SIZE = "queuer.dev/pod-group-size"
POD_SET = "queuer.dev/pod-set"
USER = "queuer.dev/user"
GROUPS = "queuer.dev/groups"
ADMISSION = "queuer.dev/admission"
STATUS = "queuer.dev/status"
BREAK_GLASS = "queuer.dev/break-glass"
WORKLOAD = "queuer.dev/workload"
MANAGED = "queuer.dev/managed"
DEFAULT_QUEUE = "queuer.dev/default-queue"
POD_CREATORS = "queuer.dev/pod-creators"


class Where(StrEnum):
    """On what a key is, and who writes it."""

    OWNER = "On a job, written by its owner"
    QUEUER = "On a job, written by Queuer alone"
    POD = "On a pod, from the pod template, written by Queuer alone"
    NAMESPACE = "On a namespace, written by an administrator"
    ADMINISTRATOR = "On a job, written by an administrator"


class Sort(StrEnum):
    """Labels are for selecting, annotations are not."""

    LABEL = "label"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """`name` ends with a dot where the name of a pod set follows. `default`: what holds where it is not written."""

    name: str
    sort: Sort
    where: Where
    value: str
    default: str = ""


def _keys(where: Where, sort: Sort, *rows: tuple[str, str, str]) -> tuple[Key, ...]:
    return tuple(Key(name=n, sort=sort, where=where, value=v, default=d) for n, v, d in rows)


KEYS = (
    *_keys(
        Where.OWNER, Sort.LABEL,
        (QUEUE, "Path of a leaf of the queue tree, e.g. `root.research.team-a`; at most 63 characters. "
         "An inner queue hands the job on by its [placement rules](../access.md#which-queue-a-job-goes-to). "
         "Frozen while the job runs.", "the namespace's `default-queue`"),
        (PRIORITY_CLASS, "Name of a PriorityClass; its value orders the job in its queue. Not `system-*`, "
         "and not above the queue's `maxPriority`.",
         "the highest `priorityClassName` that its owner wrote into its pod templates, else the cluster's default "
         "class, else 0"),
        (POD_GROUP, "On a pod that queues by itself: the name of its group, whose pods start together.", "alone"),
        (POD_SET, "On a pod of a group: the pod set that it is of. Pods of one set ask for the same.", "`main`"),
    ),
    *_keys(
        Where.OWNER, Sort.ANNOTATION,
        (TOPOLOGY_REQUIRED, "A topology level by name (`rack`) or label key: all pods in one domain of it, "
         "or the job waits.", "anywhere in the flavor"),
        (TOPOLOGY_PREFERRED, "A level from which outwards the narrowest domain that fits is taken.", ""),
        (MAX_RUNTIME, "Upper bound of the run time: `90m`, `2h`, `1h30m`, or plain seconds. Not above the queue's "
         "`maxRuntime`, which makes one necessary. A promise: see "
         "[labels.md](../labels.md#a-promise-about-the-run-time).", "`activeDeadlineSeconds`, else none"),
        (PREEMPTIBLE, "`true` or `false`. Work that is not preemptible is admitted only inside its queue's "
         "guarantee.", "`true`"),
        (HOLD, "`true` keeps the job in state Held until it is taken off. A running job runs on, and is held "
         "once it is back in its queue.", "`false`"),
        (POD_GROUP_SIZE, "On each pod of a group: how many pods it has. They wait until all are there.", ""),
        (MIN_COUNT, "1 up to the pod set's count: the job may start with as few pods of this set.",
         "whole or nothing"),
    ),
    *_keys(
        Where.QUEUER, Sort.ANNOTATION,
        (ADMISSION, "Compact JSON: `id`, `epoch`, `cycle`, `domains` of the admission in force, and `restore`: "
         "what it replaced in the template. After an eviction `restore` alone stays; `withdrawn` names an "
         "admission that was taken back before it reached the job.", ""),
        (USER, "Who queued the job, written by policy when it enters its queue.", ""),
        (GROUPS, "The groups of that user, one a line, written with it.", ""),
        (STATUS, "`Token: sentence`, why the job waits; taken off at admission.", ""),
    ),
    *_keys(Where.POD, Sort.LABEL, (WORKLOAD, "The uid of the job that pays for the pod.", "")),
    *_keys(
        Where.NAMESPACE, Sort.LABEL,
        (MANAGED, '`"true"`: labelled jobs of this namespace are queued. `required`: unlabelled Jobs, '
         "jobs of every other kind and bare pods are refused as well.", "nothing is touched"),
        (DEFAULT_QUEUE, "Queue that new jobs without the label get; an inner one places them by rule.", ""),
    ),
    *_keys(
        Where.NAMESPACE, Sort.ANNOTATION,
        (POD_CREATORS, "User names, by comma, that may create bare pods where `managed` is `required`.", ""),
    ),
    *_keys(
        Where.ADMINISTRATOR, Sort.ANNOTATION,
        (BREAK_GLASS, "By those who may `break-glass` on `queues.queuer.dev`: the policies let the change pass.",
         ""),
    ),
)  # fmt: skip


def annotation_names(*where: Where) -> tuple[str, ...]:
    """Names of the annotations that belong there, in the order of the table."""
    return tuple(key.name for key in KEYS if key.sort is Sort.ANNOTATION and key.where in where)

"""The job kinds that Queuer manages, one row each: where things are in the object, and what its controller says."""

from queuer.kube.kinds.job import JOB, MAIN
from queuer.kube.kinds.jobset import JOBSET
from queuer.kube.kinds.kubeflow import PYTORCHJOB
from queuer.kube.kinds.mpijob import MPIJOB
from queuer.kube.kinds.pod import POD, PodGroup, group_like
from queuer.kube.kinds.pods import (
    BY_NAME,
    KINDS,
    Member,
    decoded_job,
    maker_of,
    member_of,
    object_path,
    pod_selectors,
    queues_by_itself,
    told_on,
)
from queuer.kube.kinds.row import JobKind, JobObject, Made, Role, field_of
from queuer.kube.kinds.trainjob import TRAINJOB

__all__ = [
    "BY_NAME", "JOB", "JOBSET", "KINDS", "MAIN", "MPIJOB", "POD", "PYTORCHJOB", "TRAINJOB", "JobKind", "JobObject",
    "Made", "Member", "PodGroup", "Role", "decoded_job", "field_of", "group_like", "maker_of", "member_of",
    "object_path", "pod_selectors", "queues_by_itself", "told_on",
]  # fmt: skip

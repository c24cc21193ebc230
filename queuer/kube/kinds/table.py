"""All kinds of job that Queuer manages."""

from __future__ import annotations

from collections.abc import Mapping

from queuer.kube.kinds.job import JOB
from queuer.kube.kinds.jobset import JOBSET
from queuer.kube.kinds.kubeflow import KUBEFLOW
from queuer.kube.kinds.mpijob import MPIJOB
from queuer.kube.kinds.pod import POD
from queuer.kube.kinds.ray import RAYCLUSTER, RAYJOB
from queuer.kube.kinds.row import JobKind
from queuer.kube.kinds.trainjob import TRAINJOB

KINDS: tuple[JobKind, ...] = (JOB, JOBSET, TRAINJOB, RAYJOB, RAYCLUSTER, *KUBEFLOW, MPIJOB, POD)
BY_NAME: Mapping[str, JobKind] = {kind.name: kind for kind in KINDS}

"""The kinds of the Kubeflow training-operator (1.9): alike but for their roles.

Their CRDs guarantee little, so nearly everything may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from queuer.kube.kinds.row import JobKind, Role, ending
from queuer.kube.objects import (
    Condition,
    Container,
    Meta,
    PodTemplate,
    Resource,
    ResourceRequirements,
    Struct,
    holds,
)
from queuer.kube.operators import USUAL

API_VERSION = "kubeflow.org/v1"


class ReplicaSpec(Struct, frozen=True):
    template: PodTemplate = PodTemplate()
    replicas: int | None = None


class RunPolicy(Struct, frozen=True):
    suspend: bool = False
    active_deadline_seconds: int | None = None
    clean_pod_policy: str | None = None
    managed_by: str | None = None


RUN_POLICY: Mapping[str, Any] = {
    "managed_by": lambda job: job.spec.run_policy.managed_by,
    "suspend_path": ("spec", "runPolicy", "suspend"),
    "suspended": lambda job: job.spec.run_policy.suspend,
    "lingers": lambda job: job.spec.run_policy.clean_pod_policy in (None, "None"),
    "deadline": lambda job: job.spec.run_policy.active_deadline_seconds,
    "deadline_path": ("spec", "runPolicy", "activeDeadlineSeconds"),
    "clean": (("spec", "runPolicy", "cleanPodPolicy"), "Running"),
}
"""The part of a `JobKind` that both operators of Kubeflow read from `spec.runPolicy`."""


class Spec(Struct, frozen=True):
    """Each kind has its roles in another field."""

    pytorch_replica_specs: dict[str, ReplicaSpec] = msgspec.field(default_factory=dict)
    tf_replica_specs: dict[str, ReplicaSpec] = msgspec.field(default_factory=dict)
    xgb_replica_specs: dict[str, ReplicaSpec] = msgspec.field(default_factory=dict)
    paddle_replica_specs: dict[str, ReplicaSpec] = msgspec.field(default_factory=dict)
    jax_replica_specs: dict[str, ReplicaSpec] = msgspec.field(default_factory=dict)
    run_policy: RunPolicy = RunPolicy()


class ReplicaStatus(Struct, frozen=True):
    active: int = 0


class Status(Struct, frozen=True):
    conditions: list[Condition] = msgspec.field(default_factory=list)
    replica_statuses: dict[str, ReplicaStatus] = msgspec.field(default_factory=dict)
    start_time: str | None = None


class TrainingJob(Struct, frozen=True):
    """A job of any of these kinds."""

    metadata: Meta
    spec: Spec = Spec()
    status: Status = Status()


def _quiet(job: TrainingJob) -> bool:
    active = any(status.active for status in job.status.replica_statuses.values())
    fresh = job.status.start_time is None and not holds(job.status.conditions, "Running")
    return job.spec.run_policy.suspend and not active and (fresh or holds(job.status.conditions, "Suspended"))


def _roles(job: TrainingJob, *, key: str, order: tuple[str, ...]) -> tuple[Role, ...]:
    """The roles under `spec.<key>`, those of `order` first, as the operator starts them."""
    specs: dict[str, ReplicaSpec] = getattr(job.spec, _attribute(key))
    places = {name: place for place, name in enumerate(order)}
    return tuple(
        Role(
            name=name.lower(),
            declared=specs[name].replicas,
            template=specs[name].template,
            count_path=("spec", key, name, "replicas"),
            template_path=("spec", key, name, "template"),
        )
        for name in sorted(specs, key=lambda name: (places.get(name, len(places)), name))
    )


def _attribute(key: str) -> str:
    return key.removesuffix("ReplicaSpecs") + "_replica_specs"


_WAITING = Container(
    name="init-pytorch", resources=ResourceRequirements(requests={"cpu": "50m", "memory": "10Mi"})
)
"""The init container in which each worker waits for the master (pkg/controller.v1/pytorch/initcontainer.go, 1.9.4)."""


def _with_waiting(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    """The roles as the operator makes their pods: workers wait where there is a master."""
    if not any(role.name == "master" for role in roles):
        return roles
    return tuple(_waiting(role) if role.name == "worker" else role for role in roles)


def _waiting(role: Role) -> Role:
    spec = role.template.spec
    with_it = msgspec.structs.replace(spec, init_containers=[*spec.init_containers, _WAITING])
    return replace(role, template=msgspec.structs.replace(role.template, spec=with_it))


def _row(
    name: str, *, key: str, order: tuple[str, ...],
    as_made: Callable[[tuple[Role, ...]], tuple[Role, ...]] = lambda roles: roles,
) -> JobKind:  # fmt: skip
    """One of these kinds. `key`: the field of its roles; `order`: in which the operator starts them; `as_made`: their
    pods with what it adds.
    """
    pods: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    return JobKind(
        name=name,
        api_version=API_VERSION,
        resource=Resource(group="kubeflow.org", version="v1", plural=f"{name.lower()}s"),
        type=TrainingJob,
        operators=USUAL["training-operator"],
        manager="kubeflow.org/training-operator",
        quiet=_quiet,
        outcome=lambda job: ending(job.status.conditions, "Succeeded"),
        roles=lambda job: as_made(_roles(job, key=key, order=order)),
        roles_key=key,
        pods=lambda uid, job: (
            f"training.kubeflow.org/job-name={job},training.kubeflow.org/operator-name={name.lower()}-controller"
        ),
        pod_labels=tuple(
            f"training.kubeflow.org/{label}"
            for label in ("job-name", "replica-type", "replica-index", "operator-name")
        ),
        pod_label="training.kubeflow.org/replica-type",
        example={key: dict.fromkeys(order, pods)},
        **RUN_POLICY,
    )


PYTORCHJOB = _row("PyTorchJob", key="pytorchReplicaSpecs", order=("Master", "Worker"), as_made=_with_waiting)
KUBEFLOW = (
    PYTORCHJOB,
    _row("TFJob", key="tfReplicaSpecs", order=("Chief", "Master", "PS", "Worker", "Evaluator")),
    _row("XGBoostJob", key="xgbReplicaSpecs", order=("Master", "Worker")),
    _row("PaddleJob", key="paddleReplicaSpecs", order=("Master", "Worker")),
    _row("JAXJob", key="jaxReplicaSpecs", order=("Worker",)),
)

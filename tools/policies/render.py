"""The templates of `templates/`, filled in: what differs from kind to kind comes from the rows.

CEL cannot share an expression between policies; a template can (`words.jinja`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from queuer.domain.keys import KEYS, Sort, Where
from queuer.kube.kinds import JOB, JOBSET, KINDS, MPIJOB, JobKind
from queuer.kube.kinds.kubeflow import KUBEFLOW
from queuer.kube.kinds.pod import GATE, GROUP_LABELS
from queuer.kube.kinds.ray import RAYCLUSTER, RAYJOB
from queuer.kube.operators import USUAL
from queuer.kube.operators import cel_list as _list

_KINDS = tuple(kind for kind in KINDS if kind.gates is None)
"""Those that are suspended. Pods have policies of their own."""
_TEMPLATES = Path(__file__).resolve().parent / "templates"
FOLDER = Path(__file__).resolve().parents[2] / "deploy/helm/queuer/files"


def made() -> Mapping[str, str]:
    """The text of each file, by its path in the chart's `files`."""
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True,
        trim_blocks=True, lstrip_blocks=True, autoescape=False,
    )  # fmt: skip
    found.globals.update(_words())
    names = sorted(str(path.relative_to(_TEMPLATES)) for path in _TEMPLATES.rglob("*.yaml"))
    return {name: found.get_template(name).render() for name in names}


def _carrier(kind: JobKind) -> JobKind | None:
    return None if kind.made is None or kind.made.carrier is None else kind.made.carrier.kind


_CHILDREN = [
    kind for kind in KINDS if kind is not JOB and any(kind.name in other.children for other in KINDS)
]
"""Kinds whose objects may be made by another kind's controller."""
_CARRIERS = [kind for kind in KINDS if any(_carrier(other) is kind for other in KINDS)]
"""Kinds of which another kind's controller makes one object a job."""


def _words() -> dict[str, Any]:
    """What the templates may say."""
    beside = [kind for kind in _KINDS if kind is not JOB]
    return {
        "kinds": _KINDS,
        "gate": GATE,
        "names": _list(key.name for key in KEYS if key.where is not Where.NAMESPACE),
        "kubeflow": (*KUBEFLOW, MPIJOB),
        "usual": USUAL,
        "training_operator": _list(USUAL["training-operator"]),
        "managed": lambda owner: _any(_named(owner, kinds) for _, kinds in _families(_KINDS)),
        "made": lambda owner: _any(_named(owner, [kind]) for kind in _KINDS if kind.made or kind.children),
        "parents": _list(kind.name for kind in _KINDS if kind.children),
        "reared": lambda owner: _any(
            f"request.userInfo.username in {_list(kind.operators)} && {_named(owner, [kind])}"
            for kind in _KINDS
            if kind.children
        ),
        "child_operators": _lists([JOB, *(kind for kind in _KINDS if kind.children)]),
        "child_labels": _list(dict.fromkeys(k.pod_label for k in _KINDS if k.children and k.pod_label)),
        "finalizers": _finalizers(),
        "ray": (RAYJOB, RAYCLUSTER),
        "ray_operators": _list(RAYJOB.operators),
        "carried": lambda owner: _any(_named(owner, [kind]) for kind in _KINDS if _carrier(kind) is not None),
        "children": [JOB, *_CARRIERS, *_CHILDREN],
        "child_kinds": _list(kind.name for kind in (JOB, *_CARRIERS, *_CHILDREN)),
        "carriers": _CARRIERS,
        "carrier_names": _list(kind.name for kind in _CARRIERS),
        "uncertain": _list(
            k.pod_label for k in _KINDS if k.made is not None and not k.made.certain and k.pod_label
        ),
        "child_templates": _child_templates,
        "driven": lambda owner: _any(
            f"request.userInfo.username in {_list(names)} && {_named(owner, kinds)}"
            for names, kinds in _families(beside)
        ),
        "operators": _lists(beside),
        "lws_operators": _list(USUAL["lws"]),
        "lws_labels": _list(GROUP_LABELS),
        "label_keys": _list(_owners_keys(Sort.LABEL)),
        "annotation_keys": _list(_owners_keys(Sort.ANNOTATION)),
        "job_operators": _list(JOB.operators),
        "pod_labels": _list(dict.fromkeys(label for kind in _KINDS for label in kind.pod_labels)),
        "marks": _list(kind.made.mark for kind in _KINDS if kind.made is not None and kind.made.certain),
        "made_labels": _list(
            dict.fromkeys(
                label
                for kind in _KINDS
                if kind.made is not None
                for label in (kind.made.mark, *kind.pod_labels)
            )
        ),
        "made_mark": JOBSET.made.mark if JOBSET.made is not None else "",
        "garbage_collectors": _list(
            (
                *JOB.operators[:1],
                "system:serviceaccount:kube-system:generic-garbage-collector",
                "system:serviceaccount:kube-system:ttl-after-finished-controller",
            )
        ),
        "managers": _map({kind.name: kind.manager for kind in _KINDS}),
        "child_managers": _list(["", JOB.manager, RAYJOB.manager]),
        "roles_keys": _map({kind.name: kind.roles_key for kind in _KINDS if kind.roles_key}),
        "suspended": lambda job: f"{_by_kind(job, lambda kind: kind.suspend_path)}.orValue(false)",
        "manager": lambda job: _by_kind(job, lambda kind: (*kind.suspend_path[:-1], "managedBy")),
        "roles": _roles,
        "templates": _pod_templates,
        "rule": _rule,
    }


def _owners_keys(sort: Sort) -> list[str]:
    """The keys that the owner of a job writes on it; not those that go on with the name of a pod set."""
    found = [key for key in KEYS if key.where is Where.OWNER and key.sort is sort]
    return [key.name for key in found if not key.name.endswith(".")]


def _rule(kind: JobKind, operations: str, *, below: str = "", status: bool = False) -> str:
    """A rule that names a kind's objects or something `below` them. A write to a Job's status can change labels too."""
    names = kind.resource.plural + below
    names += f", {names}/status" if status and not kind.resource.group.count(".") else ""
    group, version = kind.resource.group, kind.resource.version
    return f"{{apiGroups: [{group}], apiVersions: [{version}], resources: [{names}], operations: [{operations}]}}"


def _families(kinds: Sequence[JobKind]) -> list[tuple[tuple[str, ...], list[JobKind]]]:
    """Kinds with one controller, by its user names."""
    return [(names, list(same)) for names, same in groupby(kinds, key=lambda kind: kind.operators)]


def _named(owner: str, kinds: Sequence[JobKind]) -> str:
    """Whether an owner reference names one of these kinds, which have one API version."""
    names = _list(kind.name for kind in kinds)
    return f"{owner}.apiVersion == '{kinds[0].api_version}' && {owner}.kind in {names}"


def _any(conditions: Iterable[str]) -> str:
    return f"({' || '.join(conditions)})"


def _by_kind(job: str, path: Any) -> str:
    """An optional field of a job, wherever its kind has it."""
    groups = [(found, [kind.name for kind in same]) for found, same in groupby(_KINDS, key=path)]
    *first, (last, _) = groups
    text = _field(job, last)
    for found, names in reversed(first):
        text = f"request.kind.kind in {_list(names)} ? {_field(job, found)} : {text}"
    return f"({text})" if first else text


def _field(job: str, path: tuple[str, ...]) -> str:
    return "".join((job if job.startswith("variables.") else f"dyn({job})", *(f".?{key}" for key in path)))


def _roles(job: str) -> str:
    """The roles of a job by name, {} for a kind that has none."""
    first, *rest = [_field(job, ("spec", kind.roles_key)) for kind in _KINDS if kind.roles_key]
    return first + "".join(f".or({field})" for field in rest) + ".orValue({})"


def _pod_templates(job: str, roles: str) -> str:
    """The pod templates of a job, a list. `roles`: the variable with its roles."""
    listed = _field(job, ("spec", "replicatedJobs"))
    return (
        f"request.kind.kind == 'Job' ? [{_field(job, ('spec', 'template'))}.orValue({{}})] : "
        f"request.kind.kind == 'JobSet' ? {listed}.orValue([]).map(r, r.?template.?spec.?template.orValue({{}})) : "
        f"request.kind.kind in ['RayJob', 'RayCluster'] ? {_ray_templates(job)} : "
        f"{roles}.map(type, {roles}[type].?template.orValue({{}}))"
    )


def _child_templates(child: str) -> str:
    """The pod templates of an object that another kind's controller may have made."""
    single, listed = (_field(child, ("spec", key)) for key in ("template", "replicatedJobs"))
    return (
        f"request.kind.kind == 'Job' ? [{single}.orValue({{}})] : "
        f"request.kind.kind == 'RayCluster' ? {_ray_templates(child)} : "
        f"{listed}.orValue([]).map(r, r.?template.?spec.?template.orValue({{}}))"
    )


def _ray_templates(job: str) -> str:
    """The pod templates of a RayJob or RayCluster: of head, workers and the Job that submits."""
    found = []
    for at in (("rayClusterSpec",), ()):
        head = _field(job, ("spec", *at, "headGroupSpec", "template"))
        groups = _field(job, ("spec", *at, "workerGroupSpecs"))
        found.append(f"[{head}.orValue({{}})] + {groups}.orValue([]).map(g, g.?template.orValue({{}}))")
    submitter = _field(job, ("spec", "submitterPodTemplate"))
    return f"(request.kind.kind == 'RayJob' ? {found[0]} + [{submitter}.orValue({{}})] : {found[1]})"


def _finalizers() -> str:
    """By kind those that its controller puts on a job, and takes off by itself."""
    named = [f"{kind.name!r}: {_list(kind.finalizers)}" for kind in _KINDS if kind.finalizers]
    return "{" + ", ".join(named) + "}"


def _lists(kinds: Iterable[JobKind]) -> str:
    """The user names of the controllers of kinds. The list of each controller stands by itself: an installation may
    name others in its place.
    """
    return " + ".join(dict.fromkeys(_list(kind.operators) for kind in kinds))


def _map(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key!r}: {value!r}" for key, value in values.items()) + "}"

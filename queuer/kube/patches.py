"""The patches that start and suspend a job: one request each, a compare-and-set on the resourceVersion.

A tenant's writes can outrun that. An eviction that met a conflict is sent as a compare-and-set on the admission.

The annotation `queuer.dev/admission` is compact JSON. While the job is admitted it is `{"id", "epoch", "cycle",
"domains", "restore"}`. Afterwards only `restore` stays: the values that the last admission replaced, by pod set. The
next admission starts from them. Reference: KEP-5440 (scheduling directives of a suspended job may change together with
`suspend`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import msgspec

from queuer.domain.keys import ADMISSION, STATUS, WORKLOAD
from queuer.kube.gated import DECIDED, STARTS, TAKES_BACK, decided_on
from queuer.kube.kinds import JobKind, JobObject, Role
from queuer.kube.kinds.pod import PodGroup
from queuer.kube.made import OPERATIONS, PINS, on_entry, on_template, operation
from queuer.kube.template import Pin, Spec, merge_diff, note_of, pinned, scheduling_of, unpinned

_LONGEST_STATUS = 1000
PatchBody = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A merge patch, or the operations of a JSON Patch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionMark:
    """The part of the annotation that describes an admission. `at`: when it was decided, which is not written there."""

    id: str
    epoch: int
    cycle: int
    domains: tuple[str, ...] = ()
    at: float = 0.0


class _Note(TypedDict, total=False):
    """The user's own values that an admission replaced in one pod set; see `template.note_of`.

    `count`: the size that was set, and the user's own.
    """

    count: tuple[int, int | None]
    selector: dict[str, tuple[str, str | None]]
    tolerations: list[dict[str, Any]]
    hosts: Literal["added", "made"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A pod set as its user wrote it: the role with its own count, and its own scheduling part."""

    role: Role
    scheduling: Spec


def admission_of(job: JobObject) -> str | None:
    """Id of the admission that the job carries."""
    found = _annotation(job).get("id")
    return found if isinstance(found, str) else None


def domains_of(job: JobObject) -> tuple[str, ...]:
    """The domains that the admission names."""
    found = _annotation(job).get("domains")
    return tuple(map(str, found)) if isinstance(found, list) else ()


def own_roles(kind: JobKind, job: JobObject) -> tuple[Own, ...]:
    """The pod sets of a job with everything that an admission put on taken off again."""
    notes = _notes(job)
    return tuple(_own(role, notes.get(role.name, {})) for role in kind.roles(job))


def admit_patch(kind: JobKind, job: JobObject, *, pins: Iterable[Pin], mark: AdmissionMark) -> dict[str, Any]:
    """Unsuspend the job inside its pins; every pod set must have one. Clears the status annotation, also one that was
    written after `job` was seen. Of a kind that makes Jobs it says, too, how these are to be pinned before (`made`). Of
    one that is held by gates it says how each pod is to be (`gated`).
    """
    by_name = {pin.pod_set: pin for pin in pins}
    patch = _empty(kind)
    restore: dict[str, Any] = {}
    parts: dict[str, tuple[Spec, Spec]] = {}
    for own, current in zip(own_roles(kind, job), kind.roles(job), strict=True):
        pin = by_name[own.role.name]
        if kind.made is not None and kind.made.owns(own.role.name):
            patch[PINS][own.role.name] = pinned(own.scheduling, pin)
            pin = replace(pin, hosts=None)
        note = {} if kind.gates is not None else note_of(own.scheduling, pin)
        if kind.gates is None and pin.count != own.role.count:
            note["count"] = [pin.count, own.role.declared]
        if note:
            restore[own.role.name] = note
        wanted = pinned(own.scheduling, pin)
        if kind.made is not None and kind.made.carrier is not None:
            parts[own.role.name] = own.scheduling, wanted
        elif kind.listed:
            patch[OPERATIONS] += on_template(current, wanted, label=job.metadata.uid)
        elif kind.gates is not None:
            patch[STARTS][own.role.name] = {"count": pin.count, "spec": wanted}
        else:
            size = pin.count if "count" in note else own.role.declared
            _change(patch, current, wanted, size=size, label=job.metadata.uid)
    if kind.made is not None and parts:
        label = job.metadata.uid
        patch[OPERATIONS] += on_entry(kind.made, job, parts, label=label, id=mark.id, at=mark.at)
    _start(kind, patch)
    if isinstance(job, PodGroup):
        patch[DECIDED] = decided_on(job)
    said = {"id": mark.id, "epoch": mark.epoch, "cycle": mark.cycle, "domains": list(mark.domains)}
    annotations = {ADMISSION: _compact(said | ({"restore": restore} if restore else {})), STATUS: None}
    return {"metadata": _metadata(job, annotations), **patch}


def _change(patch: dict[str, Any], role: Role, wanted: Spec, *, size: int | None, label: str | None) -> None:
    """Put what gives the pod set this size and scheduling part into a merge patch, and its pods our label."""
    if size != role.declared:
        _put(patch, role.count_path, size)
    if change := merge_diff(scheduling_of(role.template.spec), wanted):
        _put(patch, (*role.template_path, "spec"), change)
    if label is not None and (role.template.metadata.labels or {}).get(WORKLOAD) != label:
        _put(patch, (*role.template_path, "metadata", "labels", WORKLOAD), label)


def _empty(kind: JobKind) -> dict[str, Any]:
    if kind.gates is not None:
        return {STARTS: {}}
    pins: dict[str, Any] = {} if kind.made is None else {PINS: {}}
    return {**pins, OPERATIONS: []} if kind.listed else pins


def _start(kind: JobKind, patch: dict[str, Any]) -> None:
    if kind.listed:
        patch[OPERATIONS].append(operation(kind.suspend_path, value=False))
    elif kind.gates is None:
        _put(patch, kind.suspend_path, value=False)


def loosen_patch(kind: JobKind, job: JobObject, start: Mapping[str, Any]) -> dict[str, Any] | None:
    """The write to the job's status that must precede the PATCH `start` below Kubernetes 1.36.2.

    It is under the same compare-and-set. None where nothing keeps the template, or `start` starts nothing.
    """
    inner: Any = start
    for key in kind.suspend_path:
        inner = inner.get(key, {})
    if inner is not False or not kind.fixed(job):
        return None
    held = {key: start["metadata"][key] for key in ("uid", "resourceVersion")}
    return {"metadata": held, "status": {"startTime": None}}


def evict_patch(kind: JobKind, job: JobObject, *, admission: str) -> dict[str, Any]:
    """Suspend the job, or have its controller end the pods of one that has ended. Its template stays as it is: the API
    server lets it change again only once it is quiet.

    The annotation names the admission that ends, so that the resourceVersion moves even if the job never started. A
    PATCH of that admission that is under way must fail.
    """
    said = {"evicted": admission, **_rest(job)}
    patch: dict[str, Any] = {"metadata": _metadata(job, {ADMISSION: _compact(said)})}
    if kind.gates is not None:
        return {**patch, TAKES_BACK: admission}
    if kind.outcome(job) is not None and kind.clean is not None:
        path, value = kind.clean
        _put(patch, path, value)
    else:
        _put(patch, kind.suspend_path, value=True)
    return patch


def firm_patch(patch: Mapping[str, Any], job: JobObject) -> PatchBody:
    """The patch that evicts or withdraws. It is a JSON Patch that holds for any version of the job with its present
    admission: writes of others cannot outrun it.

    Nobody but Queuer writes the annotation that it tests (policies/guard.yaml). A job without one keeps its
    compare-and-set.
    """
    said = job.metadata.annotations.get(ADMISSION)
    if said is None or TAKES_BACK in patch:
        return patch
    tests = [(("metadata", "uid"), job.metadata.uid), (("metadata", "annotations", ADMISSION), said)]
    body = {key: value for key, value in patch.items() if key != "metadata"}
    written = [*_leaves({"metadata": {"annotations": patch["metadata"]["annotations"]}}), *_leaves(body)]
    pairs = [
        *((path, value, "test") for path, value in tests),
        *((path, value, "add") for path, value in written),
    ]
    return [operation(path, value, op=op) for path, value, op in pairs]


def _leaves(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, Mapping):
        yield at, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, (*at, key))


def mark_patch(job: JobObject, *, mark: AdmissionMark) -> dict[str, Any]:
    """Mark a job that runs already with the admission that charges it. Nothing else of it changes, but that it waits no
    longer for what its status says."""
    said = {"id": mark.id, "epoch": mark.epoch, "cycle": mark.cycle, "domains": list(mark.domains)}
    return {"metadata": _metadata(job, {ADMISSION: _compact(said | _rest(job)), STATUS: None})}


def withdraw_patch(job: JobObject, *, admission: str) -> dict[str, Any]:
    """A write that only moves the resourceVersion, so that a PATCH of `admission` that is under way must fail."""
    return {"metadata": _metadata(job, {ADMISSION: _compact({"withdrawn": admission, **_rest(job)})})}


def free_patch(kind: JobKind, job: JobObject) -> dict[str, Any]:
    """Start a job without us, as its user wrote it: for whoever removes Queuer. It holds for any version of the job.

    The annotations of ours that say how it waits or was started go.
    """
    patch = _empty(kind)
    for own, current in zip(own_roles(kind, job), kind.roles(job), strict=True):
        if kind.gates is not None:
            patch[STARTS][own.role.name] = {"count": own.role.count, "spec": own.scheduling}
        elif not kind.listed:
            _change(patch, current, own.scheduling, size=own.role.declared, label=None)
        elif kind.made is None or kind.made.carrier is None:
            patch[OPERATIONS] += on_template(current, own.scheduling, label=None)
        if kind.made is not None and kind.made.owns(own.role.name):
            patch[PINS][own.role.name] = own.scheduling
    if kind.made is not None and kind.made.carrier is not None:
        patch[OPERATIONS] += on_entry(kind.made, job, {}, label=None, id="", at=0.0)
    _start(kind, patch)
    return {"metadata": {"annotations": {ADMISSION: None, STATUS: None}}, **patch}


def status_patch(job: JobObject, said: str | None) -> dict[str, Any] | None:
    """Write `Token: sentence` on the job, or take it off; None where it is so. Refused once the job moved on."""
    text = None if said is None else said[:_LONGEST_STATUS]
    if job.metadata.annotations.get(STATUS) == text:
        return None
    return {"metadata": _metadata(job, {STATUS: text})}


def _own(role: Role, note: Mapping[str, Any]) -> Own:
    declared = role.declared
    if "count" in note and note["count"][0] == declared:
        declared = note["count"][1]
    scheduling = unpinned(scheduling_of(role.template.spec), note)
    return Own(role=replace(role, declared=declared), scheduling=scheduling)


def _annotation(job: JobObject) -> Mapping[str, Any]:
    """Our annotation; empty where it is malformed, as anybody could write it before the namespace opted in."""
    try:
        found = json.loads(job.metadata.annotations.get(ADMISSION, "{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _notes(job: JobObject) -> Mapping[str, Mapping[str, Any]]:
    """The values that the last admission replaced, by pod set; empty where we did not write them."""
    try:
        return msgspec.convert(_annotation(job).get("restore") or {}, dict[str, _Note])
    except msgspec.ValidationError:
        return {}


def _rest(job: JobObject) -> dict[str, Any]:
    """The part of the annotation that outlives an admission."""
    notes = _notes(job)
    return {"restore": notes} if notes else {}


def _metadata(job: JobObject, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        "uid": job.metadata.uid,
        "resourceVersion": job.metadata.resource_version,
        "annotations": dict(annotations),
    }


def _put(patch: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for key in path[:-1]:
        patch = patch.setdefault(key, {})
    patch[path[-1]] = value


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)

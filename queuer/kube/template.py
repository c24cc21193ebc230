"""Which part of a pod template an admission owns, and how it is put on and taken off again.

An admission adds node selector entries, one host expression to every required node affinity term, and tolerations.
The `queuer.dev/admission` annotation notes the values that it replaced, so that the object alone gives the user's own
terms back. Where the user changed an owned field while the job was suspended, the user's value stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from queuer.domain.nodes import HOSTNAME, Toleration
from queuer.kube.objects import REQUIRED, PodSpec

Spec = dict[str, Any]
"""Scheduling part of a pod spec as JSON: `nodeSelector`, `tolerations`, `affinity`; a key is absent where unsaid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The size of one pod set in an admission, and where it may go.

    `selector`: node labels to require; `hosts`: values of the label `kubernetes.io/hostname` to choose from, None =
    any; `tolerations`: those of the flavor.
    """

    pod_set: str
    count: int
    selector: Mapping[str, str]
    hosts: tuple[str, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


def scheduling_of(spec: PodSpec) -> Spec:
    """The scheduling part of a decoded template."""
    said = {"nodeSelector": spec.node_selector, "tolerations": spec.tolerations, "affinity": spec.affinity}
    return {key: deepcopy(value) for key, value in said.items() if value}


def pinned(own: Spec, pin: Pin) -> Spec:
    """The user's `own` scheduling part with the pin put on."""
    spec = deepcopy(own)
    if pin.selector:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **pin.selector}
    if added := _new_tolerations(own, pin):
        spec["tolerations"] = [*spec.get("tolerations", []), *added]
    if pin.hosts is not None:
        expression = {"key": HOSTNAME, "operator": "In", "values": list(pin.hosts)}
        node_affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        terms = _terms(own)
        node_affinity[REQUIRED] = {
            "nodeSelectorTerms": [_with_host(term, expression) for term in terms]
            or [{"matchExpressions": [expression]}]
        }
    return spec


def note_of(own: Spec, pin: Pin) -> dict[str, Any]:
    """The note from which `unpinned` takes the pin off again: JSON, small, without the list of hosts."""
    before = own.get("nodeSelector", {})
    note: dict[str, Any] = {}
    if pin.selector:
        note["selector"] = {key: [value, before.get(key)] for key, value in pin.selector.items()}
    if added := _new_tolerations(own, pin):
        note["tolerations"] = added
    if pin.hosts is not None:
        note["hosts"] = "added" if _terms(own) else "made"
    return note


def unpinned(spec: Spec, note: Mapping[str, Any]) -> Spec:
    """The user's own scheduling part: `spec` with the pin of which `note` tells taken off."""
    own = deepcopy(spec)
    selector = own.get("nodeSelector", {})
    for key, (ours, before) in note.get("selector", {}).items():
        if selector.get(key) == ours:
            selector.pop(key)
            if before is not None:
                selector[key] = before
    ours = note.get("tolerations", [])
    own["tolerations"] = [t for t in own.get("tolerations", []) if t not in ours]
    if note.get("hosts"):
        _without_hosts(own, made=note["hosts"] == "made")
    return {key: value for key, value in own.items() if value}


def merge_diff(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes `wanted` of `current`; {} where they are equal."""
    patch: dict[str, Any] = {key: None for key in current if key not in wanted}
    for key, value in wanted.items():
        old = current.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if below := merge_diff(old, value):
                patch[key] = below
        elif old != value:
            patch[key] = value
    return patch


def _terms(spec: Spec) -> list[dict[str, Any]]:
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def _with_host(term: dict[str, Any], expression: dict[str, Any]) -> dict[str, Any]:
    """The term narrowed to hosts; an empty one matches no node and must stay so."""
    return {**term, "matchExpressions": [*term.get("matchExpressions", []), expression]} if term else term


def _without_hosts(own: Spec, *, made: bool) -> None:
    """Take the last host expression off every required term, and with it the term that was `made` for it alone."""
    affinity = own.get("affinity", {})
    node_affinity = affinity.get("nodeAffinity", {})
    terms = [_without_host(term) for term in _terms(own)]
    if kept := [term for term in terms if term or not made]:
        node_affinity[REQUIRED]["nodeSelectorTerms"] = kept
    else:
        node_affinity.pop(REQUIRED, None)
    if not node_affinity:
        affinity.pop("nodeAffinity", None)


def _without_host(term: dict[str, Any]) -> dict[str, Any]:
    expressions = list(term.get("matchExpressions", []))
    last = expressions[-1] if expressions else {}
    if last.get("key") == HOSTNAME and last.get("operator") == "In":
        expressions.pop()
    rest = {key: value for key, value in term.items() if key != "matchExpressions"}
    return {**rest, "matchExpressions": expressions} if expressions else rest


def _new_tolerations(own: Spec, pin: Pin) -> list[dict[str, str]]:
    have = own.get("tolerations", [])
    wanted = [_toleration(t) for t in pin.tolerations]
    return [t for t in wanted if t not in have]


def _toleration(toleration: Toleration) -> dict[str, str]:
    said = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {key: value for key, value in said.items() if value}

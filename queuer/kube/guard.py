"""The policies that keep queued jobs in their queues: are they in the cluster as they are shipped?

Without them anybody may start a job, so they are part of admission. The controller looks at them before it leads and
every few seconds: while one is missing or changed, it admits nothing new. It never installs them. `queuer doctor`
compares all that is installed by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from queuer.kube.client import Client, RightsError
from queuer.kube.objects import Resource
from queuer.kube.operators import USUAL, Operators
from queuer.kube.resources import POLICIES, ROLES, SYSTEM_NAMESPACE, objects
from queuer.kube.versions import Form

Document = Mapping[str, Any]
_GROUP, _VERSION = "admissionregistration.k8s.io", "v1"
RESOURCES = {
    "ValidatingAdmissionPolicy": Resource(
        group=_GROUP, version=_VERSION, plural="validatingadmissionpolicies"
    ),
    "ValidatingAdmissionPolicyBinding": Resource(
        group=_GROUP, version=_VERSION, plural="validatingadmissionpolicybindings"
    ),
}
"""What the guard is made of, by kind."""
_OURS = "queuer-guard"
_WITHOUT_EFFECT: Mapping[str, Any] = {
    "conversion": {"strategy": "None"}, "excludeResourceRules": [], "globalDefault": False, "matchConditions": [],
    "matchPolicy": "Equivalent", "matchResources": {}, "namespaceSelector": {}, "objectSelector": {},
    "paramKind": None, "paramRef": None, "resourceNames": [], "scope": "*",
}  # fmt: skip
"""Fields that make an object guard less where they are added, with the values at which they do not. Any other field
that is not shipped is ignored: the next minor of Kubernetes may fill in one that is new, and admission must go on.
"""
_SELECTORS = ("namespaceSelector", "objectSelector")
"""Compared in full: each label that is added narrows."""


def shipped_guard(
    namespace: str = SYSTEM_NAMESPACE, *, form: Form = Form.FULL, operators: Operators = USUAL
) -> dict[tuple[str, str], Document]:
    """The policies `queuer-guard` and `queuer-guard-*` of a form with their bindings, by (kind, name).

    They trust the controller of `namespace`, and `operators`.
    """
    found = objects(*POLICIES[form], namespace=namespace, operators=operators)
    named = {(d["kind"], d["metadata"]["name"]): d for _, d in found}
    return {key: d for key, d in named.items() if key[0] in RESOURCES and key[1].startswith(_OURS)}


async def faults_of_guard(client: Client, wanted: Mapping[tuple[str, str], Document]) -> tuple[str, ...]:
    """Each policy or binding that is missing or changed, in words. Raises ApiError or Unavailable."""
    live: dict[tuple[str, str], Document] = {}
    for kind, resource in RESOURCES.items():
        try:
            found = msgspec.json.decode(await client.get(resource.collection))
        except RightsError:
            return (
                f"the controller may not list {resource.plural}: apply {ROLES[Form.FULL][0]}, or upgrade the chart",
            )
        for item in found.get("items") or ():
            live[kind, item["metadata"]["name"]] = {
                "apiVersion": f"{_GROUP}/{_VERSION}",
                "kind": kind,
                **item,
            }
    return tuple(_faults(wanted, live))


def _faults(
    wanted: Mapping[tuple[str, str], Document], live: Mapping[tuple[str, str], Document]
) -> Iterator[str]:
    for key, document in wanted.items():
        said = "is missing" if key not in live else differs(document, live[key])
        if said is not None:
            yield f"{' '.join(key)} {said}"


def differs(wanted: Document, live: Document) -> str | None:
    """How an object is not as shipped, in words; None where it is. Its metadata and status do not count."""
    mine = {key: value for key, value in wanted.items() if key not in ("metadata", "status")}
    at = next(_differences(mine, live, ""), None)
    if at is None:
        return None
    if at.startswith("spec.validationActions"):
        acts = ", ".join(map(str, live["spec"].get("validationActions", []))) or "nothing"
        return f"has validationActions {acts}: it refuses less than it should"
    return f"is not the one of this version: it differs at {at}"


def _differences(mine: Any, theirs: Any, at: str) -> Iterator[str]:
    """Paths at which `theirs` lacks what `mine` says, or has what guards less."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping) and not at.endswith(_SELECTORS):
        for key in sorted(mine.keys() | (theirs.keys() & _WITHOUT_EFFECT.keys())):
            none = _WITHOUT_EFFECT.get(key)
            yield from _differences(mine.get(key, none), theirs.get(key, none), f"{at}.{key}" if at else key)
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from _differences(one, other, f"{at}[{index}]")
    elif mine != theirs:
        yield at

"""The policies that keep queued jobs in their queues: are they in the cluster as they are shipped?

Without them anybody may start a job, so they are part of admission: the controller looks at them before it leads and
every few seconds, and admits nothing new while one is missing or changed. It never installs them. `queuer doctor`
compares all that is installed by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from queuer.kube.client import Client, RightsError
from queuer.kube.objects import Resource
from queuer.kube.resources import POLICIES, ROLES, SYSTEM_NAMESPACE, objects

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
_FILLED_IN: Mapping[str, Any] = {
    "scope": "*", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
    "conversion": {"strategy": "None"}, "globalDefault": False,
}  # fmt: skip
"""Fields that the API server adds with these defaults: they count as left out."""


def shipped_guard(namespace: str = SYSTEM_NAMESPACE) -> dict[tuple[str, str], Document]:
    """The policies `queuer-guard` and `queuer-guard-*` with their bindings, by (kind, name).

    They trust the controller of `namespace`.
    """
    named = {(d["kind"], d["metadata"]["name"]): d for _, d in objects(POLICIES, namespace=namespace)}
    return {key: d for key, d in named.items() if key[0] in RESOURCES and key[1].startswith(_OURS)}


async def faults_of_guard(client: Client, wanted: Mapping[tuple[str, str], Document]) -> tuple[str, ...]:
    """Each policy or binding that is missing or changed, in words. Raises ApiError or Unavailable."""
    live: dict[tuple[str, str], Document] = {}
    for kind, resource in RESOURCES.items():
        try:
            found = msgspec.json.decode(await client.get(resource.collection))
        except RightsError:
            return (f"the controller may not list {resource.plural}: apply {ROLES}, or upgrade the chart",)
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
    """How an object is not as shipped, in words; None where it is.

    It is compared in full but for its metadata and status: a policy with one more condition may guard nothing.
    """
    mine, theirs = (_without_defaults({**each, "metadata": None, "status": None}) for each in (wanted, live))
    at = next(_differences(mine, theirs, ""), None)
    if at is None:
        return None
    if at.startswith("spec.validationActions"):
        acts = ", ".join(map(str, theirs["spec"].get("validationActions", []))) or "nothing"
        return f"has validationActions {acts}: it refuses less than it should"
    return f"is not the one of this version: it differs at {at}"


def _without_defaults(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: one for key, one in value.items() if key not in _FILLED_IN or one != _FILLED_IN[key]}
        return {key: _without_defaults(one) for key, one in kept.items()}
    return [_without_defaults(one) for one in value] if isinstance(value, list) else value


def _differences(mine: Any, theirs: Any, at: str) -> Iterator[str]:
    """Paths at which two values differ."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        for key in sorted({*mine, *theirs}):
            yield from _differences(mine.get(key), theirs.get(key), f"{at}.{key}" if at else key)
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from _differences(one, other, f"{at}[{index}]")
    elif mine != theirs:
        yield at

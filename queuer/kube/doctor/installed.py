"""Is what is shipped installed as shipped: definitions, policies with their bindings, roles, accounts?

An object is compared in full but for its metadata and status: a policy with one more condition may guard nothing.
Fields that the API server fills in with their default count as left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from queuer.domain.errors import QueuerError
from queuer.domain.finding import Finding, barred, ok, unknown, wrong
from queuer.kube.client import ApiError, Client, NotFoundError
from queuer.kube.objects import Resource

_ADMISSION, _RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
_RESOURCES = {
    "CustomResourceDefinition": Resource(
        group="apiextensions.k8s.io", version="v1", plural="customresourcedefinitions"
    ),
    "ValidatingAdmissionPolicy": Resource(
        group=_ADMISSION, version="v1", plural="validatingadmissionpolicies"
    ),
    "ValidatingAdmissionPolicyBinding": Resource(
        group=_ADMISSION, version="v1", plural="validatingadmissionpolicybindings"
    ),
    "MutatingAdmissionPolicy": Resource(group=_ADMISSION, version="v1", plural="mutatingadmissionpolicies"),
    "MutatingAdmissionPolicyBinding": Resource(
        group=_ADMISSION, version="v1", plural="mutatingadmissionpolicybindings"
    ),
    "PriorityClass": Resource(group="scheduling.k8s.io", version="v1", plural="priorityclasses"),
    "Namespace": Resource(group="", version="v1", plural="namespaces"),
    "ServiceAccount": Resource(group="", version="v1", plural="serviceaccounts"),
    "ClusterRole": Resource(group=_RBAC, version="v1", plural="clusterroles"),
    "ClusterRoleBinding": Resource(group=_RBAC, version="v1", plural="clusterrolebindings"),
}
_FREE = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
"""Kinds that need only be there: administrators add to them, and what rights come of them is looked at apart."""
_FILLED_IN: Mapping[str, Any] = {
    "scope": "*", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
    "conversion": {"strategy": "None"}, "globalDefault": False,
}  # fmt: skip
_ACTIONS = "spec.validationActions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """An object as it is shipped, and the file that has it."""

    file: Path
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """e.g. `ValidatingAdmissionPolicy queuer-guard`."""
        return f"{self.document['kind']} {self.document['metadata']['name']}"

    @property
    def path(self) -> str:
        """Where the API server has it."""
        meta = self.document["metadata"]
        return _RESOURCES[self.document["kind"]].path(meta["name"], namespace=meta.get("namespace", ""))

    @property
    def install(self) -> str:
        """The command that makes it where it is missing."""
        return f"kubectl apply --server-side --force-conflicts -f {self.file}"

    @property
    def replace(self) -> str:
        """The command that puts it in the place of another: applying would leave what others added."""
        return f"kubectl replace -f {self.file}"


def shipped(files: Sequence[Path]) -> list[Shipped]:
    """The objects in these files."""
    return [
        Shipped(file=file, document=document)
        for file in files
        for document in yaml.safe_load_all(file.read_text())
        if document
    ]


async def installed(client: Client, objects: Sequence[Shipped], *, check: str) -> list[Finding]:
    """One finding for each object that is not as it should be; one for all where they are."""
    found = [
        finding
        for finding in await asyncio.gather(*(_one(client, each, check=check) for each in objects))
        if finding is not None
    ]
    return found or [ok(check, f"{len(objects)} objects are there as shipped")]


async def _one(client: Client, wanted: Shipped, *, check: str) -> Finding | None:
    try:
        live = msgspec.json.decode(await client.get(wanted.path))
    except NotFoundError:
        return wrong(check, f"{wanted.name} is missing", wanted.install)
    except QueuerError as error:
        text = f"{wanted.name} cannot be read: {error}"
        return barred(check, text) if _forbidden(error) else unknown(check, text, "is the API server well?")
    if wanted.document["kind"] in _FREE:
        return None
    difference = differs(wanted.document, live)
    return None if difference is None else wrong(check, f"{wanted.name} {difference}", wanted.replace)


def _forbidden(error: QueuerError) -> bool:
    return isinstance(error, ApiError) and error.status in (401, 403)


def differs(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> str | None:
    """In words where an object is not as shipped; None where it is."""
    mine, theirs = (_content(each) for each in (wanted, live))
    at = next(_places(mine, theirs, ""), None)
    if at is None:
        return None
    if at.startswith(_ACTIONS):
        acts = ", ".join(map(str, theirs["spec"].get("validationActions", []))) or "nothing"
        return f"has validationActions {acts}: it refuses less than it should"
    return f"is not the one of this version: it differs at {at}"


def _content(document: Mapping[str, Any]) -> Any:
    return _said({key: value for key, value in document.items() if key not in ("metadata", "status")})


def _said(value: Any) -> Any:
    """Without what the API server fills in."""
    if isinstance(value, Mapping):
        return {
            key: _said(one) for key, one in value.items() if key not in _FILLED_IN or one != _FILLED_IN[key]
        }
    return [_said(one) for one in value] if isinstance(value, list) else value


def _places(mine: Any, theirs: Any, at: str) -> Iterator[str]:
    """Paths at which two values differ."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        for key in sorted({*mine, *theirs}):
            yield from _places(mine.get(key), theirs.get(key), f"{at}.{key}" if at else key)
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from _places(one, other, f"{at}[{index}]")
    elif mine != theirs:
        yield at

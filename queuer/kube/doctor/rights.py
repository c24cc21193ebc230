"""May our service accounts do what their roles in `deploy/rbac.yaml` say? The API server is asked, right by right.

Roles are not compared: what counts is what comes of all roles and bindings together.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from queuer.domain.errors import QueuerError
from queuer.domain.finding import Finding, barred, ok, wrong
from queuer.kube.client import Client
from queuer.kube.doctor.installed import Shipped

CHECK = "rights"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A right that an account must have. `resource` may have a subresource: `queues/status`."""

    namespace: str
    account: str
    group: str
    resource: str
    verb: str

    @property
    def name(self) -> str:
        """As kubectl writes it: `patch jobs.batch`."""
        resource, slash, sub = self.resource.partition("/")
        return f"{self.verb} {resource}{'.' + self.group if self.group else ''}{slash}{sub}"


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def needed(objects: Sequence[Shipped]) -> Iterator[Needed]:
    """What the shipped roles give to service accounts."""
    documents = [each.document for each in objects]
    roles = {d["metadata"]["name"]: d["rules"] for d in documents if d["kind"] == "ClusterRole"}
    for binding in (d for d in documents if d["kind"] == "ClusterRoleBinding"):
        for subject, rule in itertools.product(binding["subjects"], roles[binding["roleRef"]["name"]]):
            for group, resource, verb in itertools.product(
                rule["apiGroups"], rule["resources"], rule["verbs"]
            ):
                yield Needed(
                    namespace=subject["namespace"], account=subject["name"],
                    group=group, resource=resource, verb=verb,
                )  # fmt: skip


async def rights(client: Client, objects: Sequence[Shipped]) -> list[Finding]:
    """One finding for each account that lacks rights, with all that it lacks."""
    wanted = list(needed(objects))
    try:
        allowed = await asyncio.gather(*(_allowed(client, each) for each in wanted))
    except QueuerError as error:
        return [barred(CHECK, f"rights cannot be asked for: {error}")]
    missing: dict[str, list[str]] = defaultdict(list)
    for each, may in zip(wanted, allowed, strict=True):
        if not may:
            missing[f"{each.namespace}/{each.account}"].append(each.name)
    if not missing:
        return [ok(CHECK, f"the service accounts have the {len(wanted)} rights that they need")]
    fix = next(each.install for each in objects if each.document["kind"] == "ClusterRole")
    return [
        wrong(CHECK, f"the service account {account} may not {', '.join(names)}", fix)
        for account, names in missing.items()
    ]


async def _allowed(client: Client, right: Needed) -> bool:
    resource, _, subresource = right.resource.partition("/")
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{right.namespace}:{right.account}",
            "groups": [
                "system:serviceaccounts", f"system:serviceaccounts:{right.namespace}", "system:authenticated",
            ],
            "resourceAttributes": {
                "group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb,
            },
        },
    }  # fmt: skip
    answer = await client.create(_REVIEWS, body, resource="subjectaccessreviews")
    return msgspec.json.decode(answer, type=_Review).status.allowed

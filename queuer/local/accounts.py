"""The check of `queuer doctor` on the accounts of the controllers of job kinds, which the policies trust by name.

It looks at accounts, rights and namespaces, which administrators make. It never proposes an account that it has found:
a tenant may have made one that looks like a controller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from queuer.domain.errors import QueuerError
from queuer.domain.keys import MANAGED
from queuer.kube.kinds import KINDS
from queuer.kube.kinds.pod import LEADERWORKERSETS
from queuer.kube.objects import Resource
from queuer.kube.operators import USUAL
from queuer.local.cluster_checks import REVIEWS, Right
from queuer.local.site import Finding, Site, odd, ok, status_of, unreadable, wrong

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RUNS: Mapping[str, Resource] = {
    "lws": LEADERWORKERSETS,
    **{name: kind.resource for name, users in USUAL.items() for kind in KINDS if kind.operators == users},
}
"""Objects of each controller."""


T = TypeVar("T")


class Account(NamedTuple):
    """A service account."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.name}"


def operators(site: Site) -> Iterator[Finding]:
    """Whether the accounts that the policies trust run the controllers of the kinds that the cluster serves."""
    assert site.cluster is not None
    spaces = site.labels("namespaces")
    faults = [*_reached_by_tenants(site, spaces)]
    definitions = site.ask(site.cluster.get(f"{_CRDS}/{r.plural}.{r.group}") for r in _RUNS.values())
    served = _present("the kinds that the cluster serves", tuple(_RUNS), definitions)
    faults += [fault for name in served for fault in _not_there(site, name)]
    yield from faults or [ok(f"the policies trust who runs {', '.join(served) or 'no controller of jobs'}")]


def accounts_of(users: tuple[str, ...]) -> list[Account]:
    """Those of the users that are service accounts."""
    parts = [user.split(":") for user in users]
    return [Account(*found[2:]) for found in parts if len(found) == 4 and found[1] == "serviceaccount"]


def _reached_by_tenants(site: Site, spaces: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    for name, users in site.operators.items():
        for account in accounts_of(users):
            if spaces.get(account.namespace, {}).get(MANAGED) in ("true", "required"):
                text = (
                    f"whoever may create pods in the managed namespace {account.namespace} can act as {name}"
                )
                fix = f"keep jobs out of that namespace, or run {name} in another one and name that in operators.{name}"
                yield wrong(text, fix)


def _not_there(site: Site, name: str) -> Iterator[Finding]:
    """The finding on one controller, whose objects the cluster serves.

    An account that is no service account gives none: the cluster keeps no list of those.
    """
    assert site.cluster is not None
    users, resource = site.operators[name], _RUNS[name]
    fix = f"name the account that runs {name} in the chart's value operators.{name}, and here in QUEUER_OPERATORS"
    if len(known := accounts_of(users)) < len(users):
        return
    answers = site.ask(site.cluster.get(account.path) for account in known)
    there = _present(f"the accounts of {name}", known, answers)
    if not there:
        named = ", ".join(users) or "none is named"
        yield wrong(
            f"{resource.plural} are served, and no account of {name} that is trusted exists: {named}", fix
        )
    elif not any(
        _may(site, Right(*account, "update", resource.group, f"{resource.plural}/status"))
        for account in there
    ):
        named = ", ".join(f"{account.namespace}/{account.name}" for account in there)
        yield odd(f"{named} may not update {resource.plural}, so another account manages them", fix)


def _present(what: str, items: Sequence[T], answers: Sequence[Any]) -> list[T]:
    """The items that are there by these answers. Raises Unseen where an answer does not say."""
    for answer in answers:
        if isinstance(answer, QueuerError) and status_of(answer) != HTTPStatus.NOT_FOUND:
            raise unreadable(f"{what} cannot be read", answer)
    return [item for item, found in zip(items, answers, strict=True) if not isinstance(found, QueuerError)]


def _may(site: Site, right: Right) -> bool:
    assert site.cluster is not None
    answer: Any
    (answer,) = site.ask([site.cluster.create(REVIEWS, right.review)])
    if isinstance(answer, QueuerError):
        raise unreadable("rights cannot be asked for", answer)
    return bool(answer["status"].get("allowed"))

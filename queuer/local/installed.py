"""The checks of `queuer doctor` that compare what is installed in the cluster with what this version ships.

Where a Helm release has the objects, Helm mends them: what kubectl applied would be in conflict with the next upgrade.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from queuer.domain.errors import QueuerError
from queuer.kube.guard import differs
from queuer.kube.operators import USUAL, Operators
from queuer.kube.resources import POLICIES, ROLES, SYSTEM_NAMESPACE, objects
from queuer.kube.versions import Form
from queuer.local.site import Finding, Health, Site, odd, ok, status_of, unknown, unreadable, wrong

RELEASE = "meta.helm.sh/release-name"
_RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"
_CHART = "deploy/helm/queuer"
FORCED = " --force-conflicts"
"""The option with which Helm takes fields back that another tool wrote."""
_FREE = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
"""Kinds that need only be there: administrators add to them."""
_LEFT = ("Namespace", "ServiceAccount", "PriorityClass")
"""Kinds that may be there before an installation, or after it."""

Document = Mapping[str, Any]
Check = Callable[[Site], Iterator[Finding]]


class Shipped(NamedTuple):
    """An object as it is shipped for Queuer in `home`, and its file. `usual`: it trusts the usual accounts."""

    file: Path
    document: Document
    home: str = SYSTEM_NAMESPACE
    usual: bool = True

    @property
    def name(self) -> str:
        """e.g. `ValidatingAdmissionPolicy queuer-guard`."""
        return f"{self.document['kind']} {self.document['metadata']['name']}"

    @property
    def path(self) -> str:
        """Where the API server has it."""
        meta, version = self.document["metadata"], self.document["apiVersion"]
        word = self.document["kind"].lower()
        plural = (
            f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("s") else f"{word}s"
        )
        space = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        return f"/api{'s' if '/' in version else ''}/{version}{space}/{plural}/{meta['name']}"

    @property
    def install(self) -> str:
        """The command that makes it where it is missing and no Helm release has it."""
        return self._command("apply --server-side --force-conflicts")

    @property
    def replace(self) -> str:
        """The command that puts it in the place of another: applying would leave what others added."""
        return self._command("replace")

    def _command(self, verb: str) -> str:
        if not self.usual:
            chart = f"helm template queuer {_CHART} -n {self.home} -f values.yaml -s templates/cluster.yaml"
            return f"{chart} | kubectl {verb} -f -"
        if self.home == SYSTEM_NAMESPACE:
            return f"kubectl {verb} -f {self.file}"
        return f"sed s/{SYSTEM_NAMESPACE}/{self.home}/ {self.file} | kubectl {verb} -f -"


def shipped(*paths: str, home: str = SYSTEM_NAMESPACE, operators: Operators = USUAL) -> list[Shipped]:
    """The objects in these files and directories, for Queuer in the namespace `home`, which trusts these operators."""
    usual = operators == USUAL
    return [Shipped(*found, home, usual) for found in objects(*paths, namespace=home, operators=operators)]


def installation(site: Site) -> Iterator[Finding]:
    """Whether Queuer is installed, and by which Helm release. Opens the site's `upgrade`."""
    cluster = site.cluster
    assert cluster is not None
    files = *ROLES[site.form], *POLICIES[site.form]
    own = [each for each in shipped(*files, home=site.home) if each.document["kind"] not in _LEFT]
    answers = site.ask(cluster.get(each.path) for each in own)
    there = [answer for answer in answers if not isinstance(answer, QueuerError)]
    failed = [answer for answer in answers if isinstance(answer, QueuerError)]
    if not there and all(status_of(error) == HTTPStatus.NOT_FOUND for error in failed):
        # Helm refuses to install a second time where the first one failed, but for this form.
        fix = f"helm upgrade --install queuer {_CHART} -n {site.home} -f values.yaml  # see docs/install.md"
        yield wrong("Queuer is not installed in this cluster", fix)
        return
    site.upgrade = ""
    if not there:
        raise unreadable("what is installed cannot be read", failed[0])
    notes = [answer["metadata"].get("annotations") or {} for answer in there]
    marks = next((found for found in notes if RELEASE in found), None)
    if marks is None:
        yield ok("Queuer is installed, and no Helm release has it")
        return
    name, space = map(shlex.quote, (marks[RELEASE], marks.get(_RELEASE_NAMESPACE, site.home)))
    site.upgrade = f"helm upgrade {name} {_CHART} -n {space} -f values.yaml"
    yield ok(f"the Helm release {name} of namespace {space} has Queuer")


def installed(*paths: str, by_form: Mapping[Form, Sequence[str]] | None = None) -> Check:
    """The check that the objects of these files are there as shipped: one finding for each that is not.

    `by_form`: further files, by the form that Queuer has on the cluster.
    """

    def check(site: Site) -> Iterator[Finding]:
        yield from _installed(site, *paths, *(by_form or {}).get(site.form, ()))

    return check


def policies(site: Site) -> Iterator[Finding]:
    """Whether the policies are there as shipped. Those of the reduced form guard a newer cluster too."""
    found = list(_installed(site, *POLICIES[site.form]))
    if site.form is Form.FULL and any(finding.health is not Health.OK for finding in found):
        older = list(_installed(site, *POLICIES[Form.REDUCED]))
        if all(finding.health is Health.OK for finding in older):
            text = "the policies are those for Kubernetes below 1.36: manifests still have to say what Queuer needs"
            found = [odd(text, site.upgrade or "helm upgrade")]
    yield from found


def _installed(site: Site, *paths: str) -> Iterator[Finding]:
    wanted = shipped(*paths, home=site.home, operators=site.operators)
    cluster = site.cluster
    assert cluster is not None
    live = site.ask(cluster.get(each.path) for each in wanted)
    faults = [_fault(each, found, site.upgrade or "") for each, found in zip(wanted, live, strict=True)]
    yield from list(filter(None, faults)) or [ok(f"{len(wanted)} objects are there as shipped")]


def _fault(wanted: Shipped, live: Any, upgrade: str) -> Finding | None:
    """The finding on one object. `live`: the object as the API server has it, or why it cannot be read."""
    if isinstance(live, QueuerError):
        if status_of(live) == HTTPStatus.NOT_FOUND:
            return wrong(f"{wanted.name} is missing", upgrade or wanted.install)
        return unknown(*unreadable(f"{wanted.name} cannot be read", live).args)
    difference = None if wanted.document["kind"] in _FREE else differs(wanted.document, live)
    if difference is None:
        return None
    if not upgrade:
        fix = wanted.replace
    elif _written_by_others(live):
        fix = f"{wanted.replace}; {upgrade}{FORCED}"  # Helm alone would leave what they added to a list
    else:
        fix = upgrade
    return wrong(f"{wanted.name} {difference}", fix)


def _written_by_others(live: Document) -> bool:
    """Whether a tool beside Helm wrote fields of it: without force Helm would refuse to."""
    writers = live["metadata"].get("managedFields") or ()
    return any(not each["manager"].startswith("helm") for each in writers if not each.get("subresource"))

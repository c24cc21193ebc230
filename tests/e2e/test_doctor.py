"""`queuer doctor` beside a real control plane, controller and API: well, then with one fault after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from queuer.local.cluster import API_PART, Cluster
from tests.e2e import nursery
from tests.e2e.controller import Database, controller, tree
from tests.e2e.support import get, kubectl, wait_until

POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """The verb as an administrator runs it."""

    cluster: Cluster
    database_url: str

    def look(self, *, identity: str = "admin", **environment: str) -> tuple[int, list[dict[str, str]]]:
        """Exit code and findings."""
        kubeconfig = str(self.cluster.kubeconfig(identity))
        given = {
            "QUEUER_API": self.cluster.queuer_url, "KUBECONFIG": kubeconfig, "QUEUER_DATABASE_URL": self.database_url,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])), **environment,
        }  # fmt: skip
        command = [sys.executable, "-m", "queuer", "doctor", "-o", "json"]
        ran = subprocess.run(
            command, env={**os.environ, **given}, capture_output=True, text=True, check=False, timeout=120
        )
        assert ran.stdout, ran.stderr
        return ran.returncode, json.loads(ran.stdout)["findings"]

    def wrong(self, **environment: str) -> list[dict[str, str]]:
        """The findings to mend; the test fails if the exit code says otherwise."""
        code, findings = self.look(**environment)
        found = [finding for finding in findings if finding["health"] == "wrong"]
        assert code == (1 if found else 0)
        return found

    def well(self) -> list[dict[str, str]]:
        """Findings where all is well, else none."""
        code, findings = self.look()
        return [] if code else findings


@pytest.fixture
def doctor(cluster: Cluster, database_url: str) -> Iterator[Doctor]:
    """Queuer runs as it should, with two levels and one namespace."""
    Database(url=database_url).apply(tree("team-a"))
    nursery.start_part(cluster, API_PART, QUEUER_DATABASE_URL=database_url)
    with controller(cluster, database_url):
        yield Doctor(cluster=cluster, database_url=database_url)
    cluster.stop([API_PART])


def test_each_fault_is_named_with_its_fix_and_the_fix_mends_it(doctor: Doctor) -> None:
    cluster = doctor.cluster
    seen = wait_until(doctor.well, timeout=20, describe=lambda: f"all is well: {doctor.look()}")
    assert [f for f in seen if f["health"] == "unknown"] == []
    assert {f["check"] for f in seen} == {
        "api", "identity", "controller", "room", "database", "kubernetes", "installation", "definitions", "policies",
        "roles", "rights", "operators", "objects", "topology", "flavors", "namespaces", "jobs", "clocks", "kubectl",
    }  # fmt: skip
    kubectl(cluster, "admin", "delete", POLICIES, "queuer-required-jobs")
    warn = json.dumps({"spec": {"validationActions": ["Warn"]}})
    kubectl(cluster, "admin", "patch", BINDINGS, "queuer-guard", "--type=merge", "-p", warn)
    _without_tolerations(cluster)
    _without_patching_jobs(cluster)
    wait_until(
        lambda: "controller" in {f["check"] for f in doctor.wrong()}, timeout=30,
        describe="the controller admits nothing without its guard",
    )  # fmt: skip
    found = doctor.wrong(QUEUER_DATABASE_URL="postgresql://nobody@127.0.0.1:1/queuer")
    unguarded = next(f for f in found if f["check"] == "controller")
    assert "queuer-guard has validationActions Warn" in unguarded["text"]
    found.remove(unguarded)
    assert [f["check"] for f in found] == ["database", "definitions", "policies", "policies", "rights"]
    said = dict(zip(("database", "crd", "binding", "policy", "right"), _ordered(found), strict=True))
    assert "check QUEUER_DATABASE_URL" in said["database"]["fix"]
    assert "flavors.queuer.dev is not the one of this version" in said["crd"]["text"]
    assert "queuer-guard has validationActions Warn" in said["binding"]["text"]
    assert "ValidatingAdmissionPolicy queuer-required-jobs is missing" in said["policy"]["text"]
    assert "queuer-controller may not patch jobs.batch" in said["right"]["text"]
    for name in ("crd", "binding", "policy", "right"):
        program, *arguments = said[name]["fix"].split()
        assert program == "kubectl"
        kubectl(cluster, "admin", *arguments)
    wait_until(doctor.well, timeout=30, describe="all is well, and the controller has looked again")


def test_what_may_not_be_looked_at_is_unknown_and_a_dead_api_is_wrong(doctor: Doctor) -> None:
    barred = partial(doctor.look, identity="alice")
    wait_until(lambda: barred()[0] == 4, timeout=20, describe=lambda: f"only rights are missing: {barred()}")
    code, findings = doctor.look(identity="alice", QUEUER_API="http://127.0.0.1:1")
    seen = {f["check"]: f["health"] for f in findings}
    assert (code, seen["api"], seen["database"]) == (1, "wrong", "ok")
    unknown = {
        "controller",
        "installation",
        "definitions",
        "policies",
        "roles",
        "rights",
        "operators",
        "objects",
        "topology",
        "flavors",
        "namespaces",
        "jobs",
    }
    assert {check for check, health in seen.items() if health == "unknown"} == unknown


def test_accounts_that_run_no_controller_or_that_tenants_reach_are_named(doctor: Doctor) -> None:
    """And no account is proposed: a tenant may have made one that looks like a controller's."""

    def told(account: str) -> list[tuple[str, str]]:
        code, found = doctor.look(QUEUER_OPERATORS=f"training-operator=system:serviceaccount:{account}")
        assert code == 1, "the policies trust another one, too"
        assert not any(account in f["fix"] for f in found if f["check"] == "operators")
        return [(f["health"], f["text"]) for f in found if f["check"] == "operators"]

    (missing,) = told("nowhere:training-operator")
    assert missing[0] == "wrong"
    assert "no account of training-operator that is trusted exists" in missing[1]
    kubectl(doctor.cluster, "admin", "create", "serviceaccount", "operator", "--namespace=team-a")
    reached, other = told("team-a:operator")
    assert reached == (
        "wrong",
        "whoever may create pods in the managed namespace team-a can act as training-operator",
    )
    assert other[0] == "warning"
    assert "team-a/operator may not update" in other[1]
    assert "another account manages them" in other[1]


def _ordered(found: list[dict[str, str]]) -> list[dict[str, str]]:
    """The binding before the policy."""
    return sorted(found, key=lambda f: (f["check"], "Binding" not in f["text"]))


def _without_tolerations(cluster: Cluster) -> None:
    """A definition that lacks a field of this version."""
    old = get(cluster, "crd", "flavors.queuer.dev")
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["tolerations"]
    _replace(cluster, old)


def _without_patching_jobs(cluster: Cluster) -> None:
    role = get(cluster, "clusterrole", "queuer-controller")
    for rule in role["rules"]:
        if "jobs" in rule["resources"]:
            rule["verbs"].remove("patch")
    _replace(cluster, role)


def _replace(cluster: Cluster, document: dict[str, Any]) -> None:
    kubectl(cluster, "admin", "replace", "-f", "-", input=json.dumps(document))

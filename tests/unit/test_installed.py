"""What `queuer doctor` says of the installation itself: rights and policies as shipped, and how each is mended."""

from __future__ import annotations

import copy
import json

import pytest

from queuer.cli import doctor
from queuer.kube.client import NotFoundError
from queuer.kube.resources import POLICIES, ROLES
from queuer.kube.versions import Form
from queuer.local.cluster_checks import needed
from queuer.local.installed import FORCED, installation, policies, shipped
from queuer.local.site import Health
from tests.unit.test_doctor import ODD, WELL, WRONG, healths, site


def test_rights_are_those_of_the_shipped_roles() -> None:
    found = list(needed(shipped(*ROLES[Form.FULL])))
    names = {(each.account, each.name) for each in found}
    assert ("queuer-controller", "patch jobs.batch") in names
    assert ("queuer-controller", "patch queues.queuer.dev/status") in names
    assert ("queuer-api", "create tokenreviews.authentication.k8s.io") in names
    controller = ("create jobs.batch", "create pods", "delete jobs.batch", "patch queues.queuer.dev",
                  "patch namespaces", "get secrets", "break-glass queues.queuer.dev")  # fmt: skip
    too_much = {("queuer-controller", right) for right in controller}
    too_much |= {
        ("queuer-api", right) for right in ("list queues.queuer.dev", "patch jobs.batch", "list pods")
    }
    assert not names & too_much, "test_chart_release finds no others in a cluster"
    assert not any("*" in name for _, name in names)
    assert {each.namespace for each in found} == {"queuer-system"}


def test_objects_and_their_fix_follow_the_namespace_of_the_installation() -> None:
    policy = next(each for each in shipped(*POLICIES[Form.FULL], home="batch") if "guard-jobs" in each.name)
    assert "system:serviceaccount:batch:queuer-controller" in str(policy.document)
    assert policy.replace == f"sed s/queuer-system/batch/ {policy.file} | kubectl replace -f -"
    assert {each.namespace for each in needed(shipped(*ROLES[Form.FULL], home="batch"))} == {"batch"}


class InstalledPolicies:
    """A cluster that has the policies of a form."""

    def __init__(self, form: Form) -> None:
        self.objects = {each.path: copy.deepcopy(dict(each.document)) for each in shipped(*POLICIES[form])}

    async def get(self, path: str) -> bytes:
        if path not in self.objects:
            raise NotFoundError(status=404, reason="NotFound", message="no such object")
        return json.dumps(self.objects[path]).encode()


UPGRADE = "helm upgrade q1 deploy/helm/queuer -n queuer-system -f values.yaml"
OWNED = {"meta.helm.sh/release-name": "q1", "meta.helm.sh/release-namespace": "queuer-system"}


def mended(there: InstalledPolicies) -> dict[str, str]:
    """The fix of each policy that is wrong."""
    with site(cluster=there) as cluster:
        assert healths(installation(cluster)) == [WELL]
        return {found.text.split()[1]: found.fix for found in policies(cluster)}


def test_objects_of_a_release_are_mended_by_helm_alone() -> None:
    """What kubectl applied would be in conflict with the next upgrade, which must say so where that happened."""
    there = InstalledPolicies(Form.FULL)
    policies_of = [path for path in there.objects if "/validatingadmissionpolicies/" in path]
    del there.objects[policies_of[0]]
    for path, manager in zip(policies_of[1:3], ("helm", "kubectl-edit"), strict=True):
        there.objects[path]["spec"] = {}
        there.objects[path]["metadata"]["managedFields"] = [
            {"manager": manager, "operation": "Apply"},
            {"manager": "kube-apiserver", "operation": "Update", "subresource": "status"},
        ]
    by_hand = mended(there)
    assert len(by_hand) == 3
    assert all(fix.startswith("kubectl ") for fix in by_hand.values())
    for each in there.objects.values():
        each["metadata"]["annotations"] = OWNED
    by_helm = mended(there)
    assert sorted(by_helm.values())[:2] == [UPGRADE, UPGRADE]
    edited = policies_of[2].rpartition("/")[2]
    assert by_helm[edited] == f"{by_hand[edited]}; {UPGRADE}{FORCED}"


def test_a_cluster_without_queuer_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """CRDs and class, which stay after a release, are no installation."""
    there = InstalledPolicies(Form.FULL)
    there.objects = {path: each for path, each in there.objects.items() if each["kind"] == "PriorityClass"}
    checks = [check for check in doctor.CHECKS if check[2] is installation or check[1] == "upgrade"]
    monkeypatch.setattr(doctor, "CHECKS", checks)
    with site(cluster=there) as cluster:
        ((name, finding),) = doctor.examine(cluster)
    assert len(checks) == 7
    assert (name, finding.text) == ("installation", "Queuer is not installed in this cluster")
    assert finding.fix.startswith("helm upgrade --install queuer deploy/helm/queuer -n queuer-system")


@pytest.mark.parametrize(
    ("there", "needed", "health"),
    [
        (Form.FULL, Form.FULL, WELL),
        (Form.REDUCED, Form.REDUCED, WELL),
        (Form.REDUCED, Form.FULL, ODD),
        (Form.FULL, Form.REDUCED, WRONG),
    ],
)
def test_a_cluster_that_was_upgraded_is_told_to_upgrade_the_chart(
    there: Form, needed: Form, health: Health
) -> None:
    """The policies that it has go on to guard: nothing is wrong, and one finding says all."""
    with site(cluster=InstalledPolicies(there), form=needed) as cluster:
        found = list(policies(cluster))
    assert set(healths(found)) == {health}
    assert ("helm upgrade" in [finding.fix for finding in found]) is (health is ODD)

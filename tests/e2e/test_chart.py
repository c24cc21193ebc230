"""The chart: what it renders is accepted by a real API server, and agrees with what the controller compares with.

Objects whose CRDs a local cluster lacks (ServiceMonitor, PrometheusRule, HTTPRoute) are held to the objects that they
name: ports, labels and rules that exist.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import queuer
from queuer.api.settings import ApiSettings
from queuer.domain.variables import read
from queuer.kube.guard import differs, shipped_guard
from queuer.kube.operators import OPERATORS, USUAL
from queuer.kube.resources import CRDS, INSTALLED_IN, NAMESPACE, POLICIES, ROLES, objects, root
from queuer.kube.versions import Form, KubernetesTooOld, form_of
from queuer.local.binaries import default_cache, ensure_binaries
from queuer.local.cluster import Cluster
from queuer.local.progress import Reporter
from tests.e2e.support import kubectl, kubectl_list

CHART = root() / "deploy" / "helm" / "queuer"
HOME = "batch-queues"
ABSENT = ("ServiceMonitor", "PrometheusRule", "HTTPRoute")
"""Kinds whose CRDs the local cluster does not have."""
EVERYTHING = {
    "imagePullSecrets": [{"name": "login"}],
    "database": {"ca": {"secretName": "authority"}},
    "logFormat": "text",
    "commonLabels": {"team": "platform"},
    "commonAnnotations": {"example.com/owner": "platform"},
    **{
        part: {
            "extraEnv": [{"name": "QUEUER_OIDC_SCOPES", "value": "openid"}],
            "nodeSelector": {"role": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "system-cluster-critical",
            "podAnnotations": {"example.com/a": "b"},
            "podLabels": {"example.com/a": "b"},
            "extraVolumes": [{"name": "client", "secret": {"secretName": "client"}}],
            "extraVolumeMounts": [{"name": "client", "mountPath": "/etc/client"}],
            "serviceAccountAnnotations": {"example.com/role": "r"},
        }
        for part in ("controller", "api")
    },
    "ingress": {"enabled": True, "host": "queuer.example", "tlsSecretName": "tls", "className": "nginx"},
    "gateway": {"enabled": True, "host": "queue.example", "parentRefs": [{"name": "public"}]},
    "networkPolicy": {"apiFrom": [{"namespaceSelector": {}}], "metricsFrom": [{"namespaceSelector": {}}]},
    "monitoring": {part: {"enabled": True} for part in ("serviceMonitor", "prometheusRule", "dashboards")},
}

Document = dict[str, Any]


@pytest.fixture(scope="session")
def helm() -> Path:
    """The program, built once."""
    return ensure_binaries(default_cache(), reporter=Reporter())["helm"]


def run(
    helm: Path, *arguments: str, values: Mapping[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Helm with values on standard input."""
    return subprocess.run(
        [str(helm), *arguments, "--values=-"], input=json.dumps(values or {}), capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def rendered(
    helm: Path, values: Mapping[str, Any] | None = None, *, kubernetes: str = "1.36.2"
) -> list[Document]:
    """All objects for a release in HOME, hooks included."""
    options = ("--namespace", HOME, "--kube-version", kubernetes)
    ran = run(helm, "template", "queuer", str(CHART), *options, values=values)
    assert ran.returncode == 0, ran.stderr
    return [found for found in yaml.safe_load_all(ran.stdout) if found]


def of_kind(documents: list[Document], kind: str) -> dict[str, Document]:
    return {d["metadata"]["name"]: d for d in documents if d["kind"] == kind}


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> Iterator[str]:
    """The namespace of the release."""
    kubectl(cluster, "admin", "create", "namespace", HOME)
    yield HOME
    kubectl(cluster, "admin", "delete", "namespace", HOME, "--wait=false")


def test_the_chart_is_of_this_version_and_lints(helm: Path) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == queuer.__version__
    for values in ({}, EVERYTHING):
        ran = run(helm, "lint", "--strict", str(CHART), values=values)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_names_that_the_api_takes_are_taken_by_the_schema(helm: Path) -> None:
    """Both are to refuse and take the same."""
    hosts = ["Q.example", "10.0.0.1", "fd00::1", "[::1]", "*"]
    found = of_kind(rendered(helm, {"api": {"allowedHosts": hosts}}), "Deployment")["queuer-api"]
    env = found["spec"]["template"]["spec"]["containers"][0]["env"]
    (text,) = (each["value"] for each in env if each["name"] == "QUEUER_ALLOWED_HOSTS")
    known = text.replace("$(POD_IP)", "fd00::2")
    taken = ApiSettings.from_env({"QUEUER_DATABASE_URL": "postgresql://x", "QUEUER_ALLOWED_HOSTS": known})
    assert {"q.example", "10.0.0.1", "fd00::1", "::1", "*"} <= set(taken.allowed_hosts)


def test_templates_look_nothing_up_and_hold_nothing_random(helm: Path) -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert not [
        word for word in ("lookup", "rand", "uuid", "genCA", "now", "derivePassword") if f" {word}" in text
    ]
    assert rendered(helm, EVERYTHING) == rendered(helm, EVERYTHING)


def test_each_value_is_in_the_schema_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    schema["properties"].pop("global")  # Helm's own

    def compare(value: Any, at: Mapping[str, Any], path: str) -> None:
        if "properties" in at:
            assert set(at["properties"]) == set(value), path
            for key, each in value.items():
                compare(each, at["properties"][key], f"{path}.{key}")

    compare(values, schema, "values")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"controler": {}}, "additional properties 'controler' not allowed"),
        ({"logLevel": "loud"}, "/logLevel"),
        ({"ingress": {"enabled": True, "host": "q.example"}}, "networkPolicy.apiFrom names nobody"),
        ({"monitoring": {"serviceMonitor": {"enabled": True}}}, "networkPolicy.metricsFrom names nobody"),
        ({"gateway": {"enabled": True}, "networkPolicy": {"enabled": False}}, "gateway.host is needed"),
        (
            {"gateway": {"enabled": True, "host": "q.example"}, "networkPolicy": {"enabled": False}},
            "gateway.parentRefs is needed",
        ),
        ({"controller": {"extraEnv": [{"name": "A", "value": 1}]}}, "/controller/extraEnv/0/value"),
        ({"api": {"extraEnv": [{"name": "A", "value": True}]}}, "/api/extraEnv/0/value"),
        ({"api": {"allowedHosts": ["q.example:8787"]}}, "/api/allowedHosts/0"),
        ({"api": {"allowedHosts": ["*.example"]}}, "/api/allowedHosts/0"),
        ({"ingress": {"host": "*.example"}}, "/ingress/host"),
        ({"gateway": {"host": "https://q.example"}}, "/gateway/host"),
        ({"api": {"extraEnv": [{"name": "QUEUER_PORT", "value": "1"}]}}, "api.extraEnv repeats QUEUER_PORT"),
        ({"controller": {"extraEnv": [{"name": "PGSSLMODE"}]}}, "controller.extraEnv repeats PGSSLMODE"),
        ({"api": {"extraEnv": [{"name": "TWICE"}, {"name": "TWICE"}]}}, "api.extraEnv repeats TWICE"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(helm: Path, values: Document, said: str) -> None:
    ran = run(helm, "template", "queuer", str(CHART), values=values)
    assert ran.returncode
    assert said in ran.stderr


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_the_api_server_accepts_all_that_is_rendered(
    helm: Path, cluster: Cluster, home: str, values: Document
) -> None:
    items = [d for d in rendered(helm, values) if d["kind"] not in ABSENT]
    said = kubectl_list(
        cluster, "admin", items,
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
    )  # fmt: skip
    assert said.count("\n") == len(items)
    assert {d["metadata"].get("namespace", home) for d in items} == {home}


@pytest.mark.parametrize("kubernetes", ["1.34.2", "1.35.4", "1.36.2", "1.37.0"])
def test_the_version_of_the_cluster_chooses_policies_and_rights(helm: Path, kubernetes: str) -> None:
    """As the program chooses: another choice would be told as a guard that is missing."""
    found = rendered(helm, kubernetes=kubernetes)
    live = {(d["kind"], d["metadata"]["name"]): d for d in found}
    form = form_of(kubernetes)
    wanted = objects(*POLICIES[form], *ROLES[form], namespace=HOME)
    assert [
        d["metadata"]["name"] for _, d in wanted if differs(d, live[d["kind"], d["metadata"]["name"]])
    ] == []
    assert ("MutatingAdmissionPolicy" in {d["kind"] for d in found}) is (form is Form.FULL)
    assert (("ClusterRole", "queuer-controller-readmission") in live) is (form is Form.REDUCED)


@pytest.mark.parametrize("kubernetes", ["1.33.9", "1.34.1", "1.36.1"])
def test_a_cluster_that_the_program_refuses_is_refused_by_the_chart(helm: Path, kubernetes: str) -> None:
    with pytest.raises(KubernetesTooOld):
        form_of(kubernetes)
    ran = run(helm, "template", "queuer", str(CHART), "--kube-version", kubernetes)
    assert "chart requires kubeVersion: >=1.34.2" in ran.stderr


@pytest.mark.parametrize("operators", [{}, {"kuberay": ["system:serviceaccount:ray:o", "ray"], "lws": []}])
def test_the_guard_that_is_rendered_is_the_one_that_the_controller_asks_for(
    helm: Path, operators: Document
) -> None:
    """Its variables say in which namespace it is, and whom it trusts beside it."""
    found = rendered(helm, {"operators": operators})
    live = {(d["kind"], d["metadata"]["name"]): d for d in found}
    (container,) = of_kind(found, "Deployment")["queuer-controller"]["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    told = read(given, {"namespace": INSTALLED_IN, "operators": OPERATORS})
    assert told["namespace"] == HOME
    assert told["operators"] == {**USUAL, **{name: tuple(users) for name, users in operators.items()}}
    wanted = shipped_guard(HOME, operators=told["operators"])
    assert [key for key, document in wanted.items() if differs(document, live[key])] == []
    accounts = {d["metadata"]["name"] for _, d in objects(NAMESPACE) if d["kind"] == "ServiceAccount"}
    assert set(of_kind(found, "ServiceAccount")) == accounts


def test_cluster_wide_objects_have_switches(helm: Path) -> None:
    off = {part: {"install": False} for part in ("crds", "policies", "roles", "priorityAndFairness")}
    assert [d["kind"] for d in rendered(helm, off) if "namespace" not in d["metadata"]] == []
    keep = "helm.sh/resource-policy"
    kept = {
        d["metadata"]["name"]
        for d in rendered(helm)
        if d["metadata"].get("annotations", {}).get(keep) == "keep"
    }
    assert kept == {"queuer-default", *(d["metadata"]["name"] for _, d in objects(CRDS))}


@pytest.mark.parametrize("kubernetes", ["1.35.4", "1.36.2"])
def test_common_labels_and_annotations_are_on_every_object(helm: Path, kubernetes: str) -> None:
    metadata = [d["metadata"] for d in rendered(helm, EVERYTHING, kubernetes=kubernetes)]
    asked = {"labels": {"team": "platform"}, "annotations": {"example.com/owner": "platform"}}
    for key, wanted in asked.items():
        assert [m["name"] for m in metadata if not wanted.items() <= m.get(key, {}).items()] == []
    standard = {"commonLabels": {"app.kubernetes.io/instance": "other"}}
    assert {d["metadata"]["labels"]["app.kubernetes.io/instance"] for d in rendered(helm, standard)} == {
        "queuer"
    }


def test_the_migration_runs_in_a_pod_like_those_of_the_controller(helm: Path) -> None:
    found = rendered(helm, EVERYTHING)
    job, controller = (
        of_kind(found, "Job")["queuer-db-upgrade"],
        of_kind(found, "Deployment")["queuer-controller"],
    )
    one, other = (d["spec"]["template"] for d in (job, controller))
    component = "app.kubernetes.io/component"
    assert one["metadata"].pop("labels") | {component: "controller"} == other["metadata"].pop("labels")
    assert one["metadata"] == other["metadata"]
    beside = {
        "containers", "restartPolicy", "automountServiceAccountToken", "serviceAccountName",
        "terminationGracePeriodSeconds", "topologySpreadConstraints",
    }  # fmt: skip
    one, other = one["spec"], other["spec"]
    assert one["priorityClassName"] == "system-cluster-critical"
    assert {k: one[k] for k in one.keys() - beside} == {k: other[k] for k in other.keys() - beside}
    (runs,), (leads,) = one["containers"], other["containers"]
    for key in ("image", "imagePullPolicy", "securityContext", "volumeMounts"):
        assert runs[key] == leads[key]
    assert [each for each in runs["env"] if each not in leads["env"]] == []


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_pods_hold_the_restricted_standard_and_no_token_too_many(helm: Path, values: Document) -> None:
    found = rendered(helm, values)
    pods = [d["spec"]["template"]["spec"] for d in found if d["kind"] in ("Deployment", "Job")]
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        context = container["securityContext"]
        assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert pod["automountServiceAccountToken"] is ("serviceAccountName" in pod)
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert env["PGSSLMODE"] == "verify-full"
        assert env["QUEUER_LOG_FORMAT"] == values.get("logFormat", "json")


def test_who_is_named_reaches_the_pods_and_nobody_else(helm: Path) -> None:
    closed = of_kind(rendered(helm), "NetworkPolicy")
    assert {name: d["spec"]["ingress"] for name, d in closed.items()} == {
        "queuer-api": [],
        "queuer-controller": [],
    }
    some = {"apiFrom": [{"podSelector": {"matchLabels": {"a": "b"}}}]}
    opened = of_kind(rendered(helm, {"networkPolicy": some}), "NetworkPolicy")
    assert opened["queuer-api"]["spec"]["ingress"] == [{"ports": [{"port": "http"}], "from": some["apiFrom"]}]
    assert opened["queuer-controller"]["spec"]["ingress"] == []


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({}, "http://127.0.0.1:8787"),
        ({"ingress": {"enabled": True, "host": "q.example"}}, "https://q.example"),
        ({"api": {"url": "https://other.example/q"}}, "https://other.example/q"),
    ],
    ids=["port-forward", "ingress", "url"],
)
def test_the_notes_lead_to_the_api(helm: Path, values: Document, address: str) -> None:
    opened: Document = {"networkPolicy": {"apiFrom": [{"podSelector": {}}]}}
    ran = run(
        helm,
        "install",
        "queuer",
        str(CHART),
        f"--namespace={HOME}",
        "--dry-run=client",
        values=values | opened,
    )
    notes = ran.stdout.partition("\nNOTES:\n")[2]
    assert f"QUEUER_API={address} " in notes
    assert ("port-forward" in notes) is address.startswith("http:")


def test_monitoring_takes_labels_and_annotations_and_grafana_its_boards_elsewhere(helm: Path) -> None:
    labels, annotations = {"a": "b"}, {"example.com/c": "d"}
    said: Document = {"enabled": True, "labels": labels, "annotations": annotations}
    monitoring = {
        "serviceMonitor": said | {"interval": "1m", "scrapeTimeout": "20s"},
        "prometheusRule": said,
        "dashboards": said | {"namespace": "grafana"},
    }
    found = rendered(
        helm, {"monitoring": monitoring, "networkPolicy": {"metricsFrom": [{"podSelector": {}}]}}
    )
    made = [d for d in found if d["kind"] in ("ServiceMonitor", "PrometheusRule", "ConfigMap")]
    assert sorted(d["metadata"]["namespace"] for d in made) == [HOME, HOME, "grafana"]
    for each in made:
        assert labels.items() <= each["metadata"]["labels"].items()
        assert each["metadata"]["annotations"] == annotations
    (endpoint,) = of_kind(found, "ServiceMonitor")["queuer"]["spec"]["endpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "1m", "scrapeTimeout": "20s"}


def test_monitors_and_routes_name_what_is_there(helm: Path) -> None:
    found = rendered(helm, EVERYTHING)
    services = of_kind(found, "Service")
    (monitor,) = of_kind(found, "ServiceMonitor").values()
    for service in services.values():
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert [each["name"] for each in service["spec"]["ports"]] == [
            monitor["spec"]["endpoints"][0]["port"]
        ]
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    unlinked = of_kind(found, "PrometheusRule")["queuer"]["spec"]
    for rule in alerts["groups"][0]["rules"]:
        del rule["annotations"]["runbook_url"]
    assert unlinked == alerts
    served = {"monitoring": {"prometheusRule": {"enabled": True, "runbooks": "https://wiki.example/r"}}}
    rules = of_kind(rendered(helm, served), "PrometheusRule")["queuer"]["spec"]["groups"][0]["rules"]
    wanted = [f"https://wiki.example/r/{rule['alert']}.html" for rule in alerts["groups"][0]["rules"]]
    assert [rule["annotations"]["runbook_url"] for rule in rules] == wanted
    (backend,) = of_kind(found, "HTTPRoute")["queuer-api"]["spec"]["rules"][0]["backendRefs"]
    assert services[backend["name"]]["spec"]["ports"][0]["port"] == backend["port"]
    boards = of_kind(found, "ConfigMap")["queuer-dashboards"]["data"]
    assert all(json.loads(text)["panels"] for text in boards.values())
    for part in ("controller", "api"):
        template = of_kind(found, "Deployment")[f"queuer-{part}"]["spec"]["template"]
        assert (
            services[f"queuer-{part}"]["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        )

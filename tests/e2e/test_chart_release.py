"""A release lives: installed, upgraded, rolled back and uninstalled by Helm, with the real processes of its pods.

The pods run what the Containerfile puts into the image, under its account, and write nothing into its tree.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import httpx2
import pytest

from queuer.kube.resources import CRDS, ROLES, objects, root
from queuer.kube.versions import Form
from queuer.local import bootstrap
from queuer.local.binaries import default_cache, ensure_binaries
from queuer.local.cluster import Cluster
from queuer.local.progress import Reporter
from queuer.store import migrate
from tests.e2e import image
from tests.e2e.controller import Database, tree
from tests.e2e.image import Image
from tests.e2e.pods import NOWHERE, Pods, playing
from tests.e2e.support import create, get, job_manifest, kubectl, wait_until

CHART = str(root() / "deploy" / "helm" / "queuer")
RELEASE = "queuer"


@pytest.fixture
def home(empty: Cluster) -> Iterator[str]:
    """A namespace for the release that is not the one that the files name."""
    name = f"release-{uuid4().hex[:6]}"
    kubectl(empty, "admin", "create", "namespace", name)
    yield name
    kubectl(empty, "admin", "delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def container() -> Iterator[Image]:
    """The image of this checkout."""
    with image.built() as made:
        yield made


def test_the_image_holds_the_wheel_whole_and_runs_without_a_server(container: Image) -> None:
    assert image.held(container.wheel) == image.shipped()
    before = container.written()
    manifest = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "team-a"},
        "spec": {"hard": {"requests.nvidia.com/gpu": 8}},
    }
    assert "root.team-a" in container.run("import", "resourcequota", "-", given=json.dumps(manifest))
    assert container.written() == before


@pytest.mark.timeout(600)
def test_a_release_is_installed_upgraded_rolled_back_and_leaves_its_crds_and_class(
    empty: Cluster, home: str, database: str, namespace: str, container: Image
) -> None:
    before = container.written()
    cluster = empty
    values = {
        "listen": "$(POD_IP)",
        "database": {"sslMode": "prefer"},
        "controller": {
            "nodeSelector": NOWHERE,
            "extraEnv": [{"name": "QUEUER_CONFIG_CRS", "value": "false"}],
        },
        "api": {"nodeSelector": NOWHERE, "replicas": 1},
    }

    def helm(*arguments: str, given: bool = True) -> str:
        program = ensure_binaries(default_cache(), reporter=Reporter())["helm"]
        target = (f"--namespace={home}", f"--kubeconfig={cluster.kubeconfig('admin')}")
        wanted = ("--values=-", "--timeout=120s") if given else ()
        ran = subprocess.run(
            [str(program), *arguments, *target, *wanted], input=json.dumps(values), capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr + pods.logs()
        return ran.stdout

    kubectl(
        cluster,
        "admin",
        "-n",
        home,
        "create",
        "secret",
        "generic",
        "queuer-database",
        f"--from-literal=url={database}",
    )
    with playing(cluster, home, container.program.folder, program=container.program) as pods:
        helm("install", RELEASE, CHART)
        assert migrate.current(database) == migrate.head()
        _wait_available(cluster, home, pods)
        bootstrap.wait_policies(cluster.kubectl("admin"), where=namespace)

        Database(url=database).apply(tree(namespace))
        create(cluster, job_manifest("first", namespace=namespace, queue="root.research.team-a"))
        wait_until(
            lambda: Database(url=database).state("first", namespace) == "Running", timeout=60,
            describe=lambda: f"the first job runs: {pods.logs()}",
        )  # fmt: skip
        _api_answers(pods)
        assert _may(cluster, pods, "queuer-controller") == _rules("queuer-controller")
        assert _may(cluster, pods, "queuer-api") == _rules("queuer-api")

        values["logLevel"] = "debug"
        helm("upgrade", RELEASE, CHART)
        _wait_available(cluster, home, pods)
        helm("rollback", RELEASE, "1", given=False)
        assert '"value":"info"' in kubectl(
            cluster, "admin", "get", "deployments", "-n", home, "-o", "jsonpath={..env}"
        )
        assert Database(url=database).state("first", namespace) == "Running"

        manifest = helm("get", "manifest", RELEASE, given=False)
        helm("uninstall", RELEASE, given=False)
    left = kubectl(
        cluster, "admin", "get", "-f", "-", "--ignore-not-found", "-o", "name", input=manifest
    ).split()
    kept = {
        f"customresourcedefinition.apiextensions.k8s.io/{d['metadata']['name']}" for _, d in objects(CRDS)
    }
    assert set(left) == kept | {"priorityclass.scheduling.k8s.io/queuer-default"}
    wanted = {"secret/queuer-database"}
    beside = ("get", "jobs,secrets,pods", "-n", home, "-o", "name")
    wait_until(
        lambda: set(kubectl(cluster, "admin", *beside).split()) == wanted, timeout=30, interval=0.5,
        describe=lambda: f"hooks and pods are gone: {kubectl(cluster, 'admin', *beside)}",
    )  # fmt: skip
    assert container.written() == before


def _wait_available(cluster: Cluster, home: str, pods: Pods) -> None:
    """Both Deployments have all their replicas, of the newest template and ready."""

    def available() -> bool:
        found = get(cluster, "deployments", "-n", home)["items"]
        return [d["metadata"]["name"] for d in found] == ["queuer-api", "queuer-controller"] and all(
            d["status"].get("observedGeneration") == d["metadata"]["generation"]
            and {d["status"].get(f"{which}eplicas") for which in ("r", "readyR", "updatedR")}
            == {d["spec"]["replicas"]}
            for d in found
        )

    wait_until(available, timeout=120, interval=1, describe=lambda: f"all pods are ready: {pods.logs()}")


def _api_answers(pods: Pods) -> None:
    """By the names of its Service and by its address; nobody gets in without a token, and with one the page opens."""
    address = (
        next(line for line in pods.folder.glob("queuer-api-*.log"))
        .read_text()
        .split('"url": "')[1]
        .split('"')[0]
    )
    for host in ("queuer-api", f"queuer-api.{pods.namespace}.svc", address.removeprefix("http://")):
        answer = httpx2.get(f"{address}/api/v1/overview", headers={"Host": host}, trust_env=False, timeout=60)
        assert answer.status_code == 401, answer.text
    assert httpx2.get(f"{address}/metrics", trust_env=False, timeout=60).status_code == 200
    issued = ("create", "token", "queuer-api", "-n", pods.namespace, "--audience=queuer")
    known = {"Authorization": f"Bearer {kubectl(pods.cluster, 'admin', *issued).strip()}"}
    page = httpx2.get(f"{address}/", headers=known, trust_env=False, timeout=60).text
    scripts = re.findall(r'src="(/[^"]+\.js)"', page)
    assert scripts, page
    assert httpx2.get(f"{address}{scripts[0]}", trust_env=False, timeout=60).status_code == 200


def _may(cluster: Cluster, pods: Pods, account: str) -> set[tuple[str, str]]:
    """(verb, resource) of all that the account's own token may do, but for what everybody may."""
    program = str(cluster.state.programs["kubectl"])
    command = [program, f"--kubeconfig={pods.kubeconfig(account)}", "auth", "can-i", "--list", "--no-headers"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = set()
    for line in said.splitlines():
        resource, _, verbs = line.partition(" ")
        if not resource or resource.startswith(("[", "selfsubject")):
            continue
        found |= {(verb, resource) for verb in verbs.rpartition("[")[2].rstrip("]").split()}
    return found


def _rules(role: str) -> set[tuple[str, str]]:
    """(verb, resource) of a shipped role."""
    rules = next(d["rules"] for _, d in objects(*ROLES[Form.FULL]) if d["metadata"]["name"] == role)
    found = set()
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                name, _, sub = resource.partition("/")
                full = f"{name}.{group}" if group else name
                found |= {(verb, full + (f"/{sub}" if sub else "")) for verb in rule["verbs"]}
    return found

"""Where the attacks are made: two tenants on one real control plane, with Queuer's controller and its API.

Alice attacks, Bob is attacked. All names of Bob's begin with `secret`, so that an answer is searched for them.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2

from queuer.local.bootstrap import namespace as namespace_manifest
from queuer.local.bootstrap import tenant_binding
from queuer.local.cluster import API_PART, Cluster
from tests.e2e import nursery
from tests.e2e.controller import GPU, Controller, Database, controller
from tests.e2e.scene import HIGH
from tests.e2e.support import create, job_manifest, kubectl, wait_until
from tests.e2e.tenancy import Place, let_change
from tests.waiting import PATIENCE

API = "/api/v1"
MINE, THEIRS, CUT = "root.mine", "root.theirs", "root.cut"
MOST_PENDING = 40
KNOWN = {"attacks/known": "true"}
OWN_STATUS = "queuer.dev/status"
KEY = {"Idempotency-Key": "the-key-of-bob"}
_STATE = {
    "queues": "SELECT q.path, q.weight, q.state, q.policy, q.access, q.namespaces, q.managed_by FROM queue q",
    "quota": "SELECT * FROM queue_quota",
    "configuration": "SELECT revision FROM configuration",
    "plans": "SELECT id, state FROM draft",
    "commands": "SELECT id, verb, uid, outcome FROM command WHERE outcome IS DISTINCT FROM 'refused'",
    "jobs": "SELECT uid, queue, user_name, priority, preemptible, hold, state, attempt, override FROM workload"
    " WHERE name LIKE '%%-known'",
    "ledger": "SELECT uid, queue, amounts FROM ledger WHERE closed IS NULL",
}
"""What no attack may change. Refused commands are rows too, and change nothing."""


@dataclass(slots=True, kw_only=True)
class Field:
    """The two tenants' cluster. `jobs`: the job objects that stand there all the time, by name."""

    cluster: Cluster
    database: Database
    controller: Controller
    mine: str
    theirs: str
    strict: str
    http: httpx2.Client
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan: str = ""
    command: int = 0
    answers: list[tuple[str, str]] = field(default_factory=list)
    before: Mapping[str, Any] = field(default_factory=dict)

    # -- asking

    def ask(self, method: str, path: str, *, by: str | None = "alice", **sent: Any) -> httpx2.Response:
        """A request to Queuer's API by an identity, None = by nobody; kept to be searched for what leaked."""
        headers = {**({} if by is None else self.bearer(by)), **sent.pop("headers", {})}
        answer = self.http.request(method, path, headers=headers, **sent)
        self.http.cookies.clear()
        if by != "bob":
            said = f"{answer.status_code} {dict(answer.headers)} {answer.text}"
            self.answers.append((f"{method} {path} {sent}", said))
        return answer

    def get(self, path: str, **sent: Any) -> httpx2.Response:
        """GET below `/api/v1`."""
        return self.ask("GET", API + path, **sent)

    def post(self, path: str, body: object = None, **sent: Any) -> httpx2.Response:
        """POST below `/api/v1`."""
        return self.ask("POST", API + path, json={} if body is None else body, **sent)

    def bearer(self, identity: str) -> dict[str, str]:
        """The header that says who asks."""
        return {"Authorization": f"Bearer {self.cluster.token(identity)}"}

    def raw(self, request: bytes) -> bytes:
        """The API's answer to these bytes, which need not be HTTP."""
        port = int(self.cluster.queuer_url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            found = b""
            while part := connection.recv(65536):
                found += part
        self.answers.append((request.decode("latin-1"), found.decode("latin-1")))
        return found

    @property
    def alice(self) -> Place:
        """Her namespace, as she sees it over kubectl."""
        return Place(cluster=self.cluster, namespace=self.mine, user="alice")

    def uid(self, name: str) -> str:
        """The uid of a job that stands there all the time."""
        return str(self.jobs[name]["metadata"]["uid"])

    # -- what must not happen

    def state(self) -> dict[str, Any]:
        """State that no attack may change: queues, plans, commands, jobs in the database and in the
        cluster.
        """
        found = {key: sorted(map(_text, self.database.rows(query))) for key, query in _STATE.items()}
        with self._kubernetes() as client:
            listed = client.get("/apis/batch/v1/jobs", params={"labelSelector": "attacks/known=true"}).json()
            spaces = client.get("/api/v1/namespaces").json()
        found["objects"] = sorted(_text(_fixed(item)) for item in listed["items"])
        ours = {self.mine, self.theirs, self.strict}
        found["namespaces"] = sorted(
            _text(space["metadata"]["labels"])
            for space in spaces["items"]
            if space["metadata"]["name"] in ours
        )
        return found

    def leaks(self) -> list[str]:
        """Names of Bob's jobs in the answers since the last look that were not in the question."""
        words = {
            word
            for name, made in self.jobs.items() if name.startswith("secret")
            for word in (name, made["metadata"]["uid"])
        } | {"secret", '"bob"'}  # fmt: skip
        asked, self.answers = self.answers, []
        return [
            f"{question[:200]}: {word!r} in {answer[:2000]}"
            for question, answer in asked
            for word in words
            if word in answer and word not in question
        ]

    def tokens(self) -> list[str]:
        """The secrets that no log may hold."""
        return [self.cluster.token(who) for who in ("alice", "bob", "admin")]

    def _kubernetes(self) -> httpx2.Client:
        trust = ssl.create_default_context(cafile=str(self.cluster.ca_file))
        return httpx2.Client(
            base_url=self.cluster.api_url, verify=trust, headers=self.bearer("admin"), trust_env=False
        )

    def wait_state(self, name: str, namespace: str, *states: str, timeout: float = 40) -> None:
        """Wait until a job is in one of these states."""
        wait_until(
            lambda: self.database.state(name, namespace) in states, timeout=timeout,
            describe=lambda: f"{name} is {states}: {self.database.workload(name, namespace)}",
        )  # fmt: skip


def _text(value: object) -> str:
    return json.dumps(value, default=str, sort_keys=True)


def _fixed(item: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a job that only its owner and Queuer may change."""
    meta = item["metadata"]
    notes = {key: value for key, value in meta.get("annotations", {}).items() if key != OWN_STATUS}
    return {
        "name": meta["name"], "labels": meta["labels"], "annotations": notes, "spec": item["spec"],
        "owners": meta.get("ownerReferences"), "deleted": meta.get("deletionTimestamp"),
    }  # fmt: skip


# Setting it up


def tree(mine: Sequence[str], theirs: str) -> dict[str, Any]:
    """Each tenant has a queue of two hosts; `root.cut` is Bob's too."""
    hosts = [{"resource": GPU, "limit": 16}]
    return {
        "apiVersion": "queuer.dev/v1",
        "kind": "QueueTree",
        "topology": {"levels": ["topology.kubernetes.io/block", "topology.kubernetes.io/rack"]},
        "queues": {
            MINE: {
                "namespaces": list(mine), "quota": hosts,
                "access": {"maxPriority": "queuer-default", "maxPending": MOST_PENDING},
            },
            THEIRS: {"namespaces": [theirs], "quota": hosts},
            CUT: {"namespaces": [theirs], "quota": hosts},
        },
    }  # fmt: skip


def document(root: str, **body: Any) -> dict[str, Any]:
    """A QueueTree document about one queue."""
    return {"apiVersion": "queuer.dev/v1", "kind": "QueueTree", "root": root, "queues": {root: body}}


@contextmanager
def opened(cluster: Cluster, database_url: str) -> Iterator[Field]:
    """The field with everything on it, until the end of the block."""
    mark = uuid4().hex[:6]
    mine, theirs, strict = (f"{name}-{mark}" for name in ("mine", "theirs", "strict"))
    with ExitStack() as exits:
        _namespaces(cluster, mine, theirs, strict)
        exits.callback(_remove, cluster, mine, theirs, strict)
        database = Database(url=database_url)
        database.apply(tree([mine, strict], theirs))
        process = exits.enter_context(controller(cluster, database_url))
        nursery.start_part(cluster, API_PART, QUEUER_DATABASE_URL=database_url)
        exits.callback(cluster.stop, [API_PART])
        http = httpx2.Client(base_url=cluster.queuer_url, trust_env=False, timeout=PATIENCE)
        found = Field(
            cluster=cluster, database=database, controller=process, mine=mine, theirs=theirs, strict=strict,
            http=exits.enter_context(http),
        )  # fmt: skip
        _furnish(found)
        yield found


def _namespaces(cluster: Cluster, mine: str, theirs: str, strict: str) -> None:
    required = namespace_manifest(strict)
    required["metadata"]["labels"]["queuer.dev/managed"] = "required"
    robot = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": mine}}
    items = [
        namespace_manifest(mine), namespace_manifest(theirs), required, robot, HIGH,
        tenant_binding("alice", mine), tenant_binding("alice", strict), tenant_binding("bob", theirs),
    ]  # fmt: skip
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl(cluster, "admin", "apply", "-f", "-", input=listed)
    let_change(cluster, THEIRS, "bob", role=theirs)


def _remove(cluster: Cluster, mine: str, theirs: str, strict: str) -> None:
    kubectl(cluster, "admin", "delete", "namespace", mine, theirs, strict, "--wait=false")
    kubectl(cluster, "admin", "delete", "clusterrole,clusterrolebinding", theirs)
    wait_until(
        lambda: not json.loads(kubectl(cluster, "admin", "get", "pods", "-n", mine, "-o", "json"))["items"]
        and not json.loads(kubectl(cluster, "admin", "get", "pods", "-n", theirs, "-o", "json"))["items"],
        timeout=60, describe="the tenants' pods are gone",
    )  # fmt: skip


def _furnish(at: Field) -> None:
    """Each has a job that runs and one that waits; Bob holds a third, and plans a change of his queue."""
    for who, namespace, queue, name, pods in (
        ("alice", at.mine, MINE, "mine-runs-known", 1),
        ("bob", at.theirs, THEIRS, "secret-runs-known", 1),
        ("bob", at.theirs, THEIRS, "secret-held-known", 1),
        ("alice", at.mine, MINE, "mine-waits-known", 2),
        ("bob", at.theirs, THEIRS, "secret-waits-known", 2),
    ):
        manifest = job_manifest(name, namespace=namespace, queue=queue, pods=pods, gpus=8, labels=KNOWN)
        if "held" in name:
            manifest["metadata"]["annotations"]["queuer.dev/hold"] = "true"
        at.jobs[name] = create(at.cluster, manifest, identity=who)
        wanted = "Running" if "runs" in name else "Held" if "held" in name else "Queued"
        at.wait_state(name, namespace, wanted)
    for name, namespace in (("mine-waits-known", at.mine), ("secret-waits-known", at.theirs)):
        wait_until(
            lambda name=name, namespace=namespace: at.database.reason(name, namespace).get("token")  # type: ignore[misc]
            not in (None, "PendingEvaluation"),
            timeout=30, describe=f"{name} was looked at",
        )  # fmt: skip
    held = at.post(
        f"/workloads/{at.uid('secret-held-known')}:hold?wait=10s", {"reason": "a secret of ours"}, by="bob"
    )
    assert held.status_code == 200, held.text
    at.command = held.json()["id"]
    wait_until(
        lambda: THEIRS in at.get("/me", by="bob").json()["administers"], timeout=60, describe="Bob's right",
        interval=1,
    )  # fmt: skip
    plan = at.post("/changesets", document(THEIRS, weight=3, namespaces=[at.theirs]), by="bob", headers=KEY)
    assert plan.status_code == 201, plan.text
    at.plan = plan.json()["id"]
    at.before = at.state()

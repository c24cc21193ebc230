"""Real tokens and real rights: Queuer's API beside a real API server, with its own service account."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from tempfile import NamedTemporaryFile
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from queuer.local.cluster import API_PART, Cluster
from queuer.local.controlplane import API_SERVER
from queuer.store.engine import make_engine
from tests.api.problems import problem_of
from tests.api.provider import agree, provider
from tests.api.rows import TREE, A, Author, B, leading
from tests.e2e import nursery
from tests.e2e.support import crash, wait_until
from tests.e2e.tenancy import let_change
from tests.e2e.tokens import create_token
from tests.store.support import workload
from tests.waiting import PATIENCE


@pytest_asyncio.fixture
async def author(cluster: Cluster, database_url: str) -> AsyncIterator[Author]:
    """A tree, and one job each of team-a and team-b."""
    engine = make_engine(database_url, name="identity-tests", pool_size=1)
    found = await Author.of(engine)
    await found.tree()
    await found.submit(
        workload("a1", queue=A, namespace="team-a", name="mine"),
        workload("b1", queue=B, namespace="team-b", name="secret-b"),
    )
    with leading(database_url):
        yield found
    await engine.dispose()


class Api:
    """The API as somebody who holds a token sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._http = httpx2.Client(base_url=cluster.queuer_url, trust_env=False, timeout=PATIENCE)

    def get(self, path: str, token: str | None) -> httpx2.Response:
        return self._http.get(f"/api/v1{path}", headers=_bearer(token))

    def put(self, document: dict[str, Any], token: str) -> httpx2.Response:
        headers = _bearer(token) | {"If-Match": "*"}
        reason = {"reason": "it is taken away for a test"}
        return self._http.put("/api/v1/queue-tree", json=document, params=reason, headers=headers)

    def refuses(self, token: str | None) -> bool:
        """Whether nobody is known by this token."""
        found = self.get("/me", token)
        if found.status_code == 200:
            return False
        problem_of(found, "unauthenticated")
        return True

    def close(self) -> None:
        self._http.close()


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


@pytest.fixture
def api(cluster: Cluster, database_url: str, author: Author) -> Iterator[Api]:
    """`queuer serve api` as `queuer local` runs it."""
    nursery.start_part(cluster, API_PART, QUEUER_DATABASE_URL=database_url)
    found = Api(cluster)
    yield found
    found.close()
    cluster.stop([API_PART])


@pytest.fixture
def account(cluster: Cluster, namespace: str) -> str:
    """A service account `robot` with the built-in `view` rights in a namespace of its own."""
    admin = cluster.kubectl("admin")
    admin.run("create", "serviceaccount", "robot", "-n", namespace)
    admin.run(
        "create", "rolebinding", "robot", "-n", namespace, "--clusterrole=view",
        f"--serviceaccount={namespace}:robot",
    )  # fmt: skip
    return namespace


def seen(found: httpx2.Response) -> set[str]:
    return {item["uid"] for item in found.json()["items"]}


def test_a_tenant_sees_its_namespace_and_an_admin_all(api: Api, cluster: Cluster) -> None:
    alice, admin = cluster.token("alice"), cluster.token("admin")
    assert seen(api.get("/workloads", alice)) == {"a1"}
    assert seen(api.get("/workloads", admin)) == {"a1", "b1"}
    for path in ("/workloads/b1", "/workloads/b1/explanation"):
        problem_of(api.get(path, alice), "not_found")
    said = problem_of(api.get("/workloads/by-ref/team-b/job/secret-b", alice), "forbidden")
    assert "alice may not get workloads.queuer.dev in namespace team-b" in said["detail"]
    assert len(api.get("/queues", alice).json()["items"]) == len(TREE["queues"])
    me = api.get("/me", alice).json()
    assert (me["name"], me["readsEverything"], me["namespaces"], me["administers"]) == (
        "alice", False, ["team-a"], [],
    )  # fmt: skip
    assert api.get("/me", admin).json()["administers"] == ["root"]
    problem_of(api.put(TREE, alice), "forbidden")


def test_a_service_account_is_known_by_a_token_for_us(api: Api, cluster: Cluster, account: str) -> None:
    """Which tokens are refused is tried in `tests/attacks`."""
    mine = create_token(cluster, account, "--audience=queuer")
    me = api.get("/me", mine).json()
    assert me["name"] == f"system:serviceaccount:{account}:robot"
    assert f"system:serviceaccounts:{account}" in me["groups"]


def test_a_token_ends_with_its_account(api: Api, cluster: Cluster, account: str) -> None:
    token = create_token(cluster, account, "--audience=queuer")
    cluster.kubectl("admin").run("delete", "serviceaccount", "robot", "-n", account)
    wait_until(lambda: api.refuses(token), describe="the API server has heard that the account is gone")


def test_a_role_binding_gives_rights_by_the_shipped_roles(api: Api, cluster: Cluster, account: str) -> None:
    """`view` in a namespace shows its jobs; `queuer-viewer` for the whole cluster shows all. Who may not is not asked
    about again for half a minute, so another account has that right.
    """
    token = create_token(cluster, account, "--audience=queuer")
    assert api.get("/me", token).json()["readsEverything"] is False
    name = f"viewer-{account}"
    admin = cluster.kubectl("admin")
    admin.run("create", "serviceaccount", "viewer", "-n", account)
    admin.run("create", "clusterrolebinding", name, "--clusterrole=queuer-viewer",
              f"--serviceaccount={account}:viewer")  # fmt: skip
    try:
        token = create_token(cluster, account, "--audience=queuer", account="viewer")
        wait_until(
            lambda: seen(api.get("/workloads", token)) == {"a1", "b1"},
            timeout=45,
            describe="the right to be seen",
        )
        assert api.get("/me", token).json()["administers"] == []
    finally:
        admin.run("delete", "clusterrolebinding", name)


def test_who_administers_a_subtree_changes_it_and_not_its_sibling(
    api: Api, cluster: Cluster, namespace: str
) -> None:
    """One rule on `queues.queuer.dev`, named by path, means the same over REST and over kubectl."""
    let_change(cluster, A, "bob", role=namespace)
    bob = cluster.token("bob")
    try:
        wait_until(lambda: api.get("/me", bob).json()["administers"] == [A], timeout=45, describe="the right")
        done = api.put(document(A), bob)
        assert done.status_code == 200, done.text
        assert done.json()["applied"] is True
        for path in (B, "root.research", "root"):
            problem_of(api.put(document(path), bob), "forbidden")
        can = cluster.kubectl("bob")
        assert can.run("auth", "can-i", "update", f"queues.queuer.dev/{A}").strip() == "yes"
    finally:
        cluster.kubectl("admin").run("delete", "clusterrole,clusterrolebinding", namespace)


def document(path: str) -> dict[str, Any]:
    head = {"apiVersion": "queuer.dev/v1", "kind": "QueueTree", "root": path}
    return {**head, "queues": {path: {"weight": 2}}}


def test_a_browser_logs_in_at_the_provider_and_has_the_rights_of_its_group(
    cluster: Cluster, database_url: str, author: Author, namespace: str
) -> None:
    cluster.kubectl("admin").run(
        "create", "rolebinding", "research", "-n", namespace, "--clusterrole=view", "--group=oidc:research"
    )
    with (
        provider({"sub": "carol", "groups": ["research"]}) as issuer,
        NamedTemporaryFile("w") as secret,
        httpx2.Client(
            base_url=cluster.queuer_url, trust_env=False, timeout=60, follow_redirects=False
        ) as browser,
    ):
        secret.write("s3cr3t")
        secret.flush()
        environment = {
            "QUEUER_DATABASE_URL": database_url, "QUEUER_URL": cluster.queuer_url,
            "QUEUER_OIDC_ISSUER": issuer, "QUEUER_OIDC_CLIENT_ID": "queuer", "QUEUER_OIDC_SECRET_FILE": secret.name,
            "QUEUER_OIDC_USERNAME_PREFIX": "oidc:", "QUEUER_OIDC_GROUPS_PREFIX": "oidc:",
        }  # fmt: skip
        nursery.start_part(cluster, API_PART, **environment)
        try:
            address = browser.get("/login/oidc", params={"next": "/"}).headers["location"]
            assert browser.get(agree(address, "carol")).headers["location"] == "/"
            assert browser.get("/api/v1/me").json()["name"] == "oidc:carol"
            assert browser.get(f"/api/v1/workloads/by-ref/{namespace}/job/none").status_code == 404
            assert browser.get("/api/v1/workloads/by-ref/team-a/job/mine").status_code == 403
            out = browser.post("/logout", headers={"Origin": cluster.queuer_url})
            assert out.headers["location"] == "/login"
            assert browser.get("/api/v1/me").status_code == 401
        finally:
            cluster.stop([API_PART])


def test_without_the_api_server_nobody_is_let_in(api: Api, cluster: Cluster) -> None:
    admin = cluster.token("admin")
    crash(cluster, API_SERVER)
    try:
        said = problem_of(api.get("/queues", admin), "unavailable")
        assert "Kubernetes API server" in said["detail"]
        assert api.get("/meta", None).status_code == 200
    finally:
        cluster.start([API_SERVER])
    assert api.get("/queues", admin).status_code == 200

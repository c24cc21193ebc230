"""Each check of `queuer doctor` says what is wrong and how to mend it, and does not call unknown things well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx2
import msgspec
import pytest

from queuer import __version__
from queuer.cli import doctor
from queuer.cli.client import Client
from queuer.domain.document import TreeDocument
from queuer.domain.keys import MANAGED, QUEUE
from queuer.domain.nodes import HOSTNAME, Flavor, Topology
from queuer.domain.queue import Queue
from queuer.kube.client import ApiError, NotFoundError, Page
from queuer.local import accounts, cluster_checks
from queuer.local.cluster_checks import flavors, levels, namespaces
from queuer.local.site import Finding, Health, Unseen

RACK = "topology.kubernetes.io/rack"
WELL, ODD, WRONG = Health.OK, Health.WARNING, Health.WRONG


def healths(findings: Any) -> list[Health]:
    return [finding.health for finding in findings]


def site(answers: Mapping[str, Any] | None = None, *, url: str = "https://queuer.test", **parts: Any) -> Any:
    """A site whose API gives these answers by path; it refuses the caller everything else."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.removeprefix("/api/v1")
        if path in (answers or {}):
            return httpx2.Response(200, json=(answers or {})[path])
        return httpx2.Response(401, json={"detail": "no token", "errors": []})

    return doctor.Installation(client=Client(url, transport=httpx2.MockTransport(answer)), **parts)


def tree(*queues: Queue, **parts: Any) -> TreeDocument:
    return TreeDocument(queues=queues, **parts)


@pytest.mark.parametrize(
    ("ways", "url", "health"),
    [
        (["token"], "https://queuer.example", WELL),
        ([], "http://127.0.0.1:8787", ODD),
        ([], "http://queuer.example", WRONG),
    ],
)
def test_an_open_server_is_a_fault_where_others_reach_it(ways: list[str], url: str, health: Health) -> None:
    assert healths(doctor.identity(site(url=url, meta={"authentication": ways}))) == [health]


@pytest.mark.parametrize(
    ("state", "health"),
    [
        ("leading", WELL),
        ("idle", WELL),
        ("away", WRONG),
        ("unguarded", WRONG),
        ("failing", WRONG),
        ("stale", WRONG),
        ("never", WRONG),
    ],
)
def test_a_controller_that_does_not_decide_is_a_fault(state: str, health: Health) -> None:
    said = {"state": state, "text": "said", "at": None}
    (found,) = doctor.controller(site({"/controller": said}, meta={}))
    assert (found.health, found.text) == (health, "said")
    assert ("kubectl -n queuer-system logs deploy/queuer-controller" in found.fix) is (
        state in ("stale", "never")
    )


def test_a_database_that_the_api_cannot_reach_is_a_fault() -> None:
    """A monitor that names no database sees the exit code of it all the same; who may not ask is told nothing."""
    said = "database_unavailable"
    away = httpx2.MockTransport(
        lambda _: httpx2.Response(503, json={"detail": "PostgreSQL: refused", "code": said})
    )
    found = doctor.Installation(client=Client("http://queuer.example", transport=away), meta={})
    assert healths(doctor.controller(found)) == healths(doctor.database(found)) == [WRONG]
    assert healths(doctor.database(site({"/controller": {}}, meta={}))) == [WELL]
    with pytest.raises(Unseen, match="no database was named"):
        list(doctor.database(site(meta={})))
    with pytest.raises(Unseen) as told:
        list(doctor.room(found))
    assert told.value.args[1] == "mend what it names"
    said = "unavailable"  # Kubernetes cannot be asked who somebody is: PostgreSQL is not accused
    with pytest.raises(Unseen, match="the API does not say"):
        list(doctor.database(found))


@pytest.mark.parametrize(("kinds", "health"), [(["starved"], WELL), (["starved", "outside"], ODD)])
def test_pods_that_no_queue_pays_for_are_told_where_they_are_in_the_way(
    kinds: list[str], health: Health
) -> None:
    overview = {"attention": [{"kind": kind, "text": f"said {kind}"} for kind in kinds]}
    (found,) = doctor.room(site({"/overview": overview}, meta={}))
    assert (found.health, "said outside" in found.text) == (health, health is ODD)
    assert ("create them again" in found.fix) is (health is ODD), "a job that has started takes no queue"


def test_a_server_of_another_version_is_told() -> None:
    assert healths(doctor.api(site({"/meta": {"version": __version__}}))) == [WELL]
    (found,) = doctor.api(site({"/meta": {"version": "0.0.1"}}))
    assert (found.health, "queuer==0.0.1" in found.fix) == (ODD, True)


@pytest.mark.parametrize(
    ("there", "health"), [((), ODD), (("kubectl",), ODD), (("kubectl", "kubectl-queuer"), WELL)]
)
def test_programs_are_looked_for_on_the_path(
    there: tuple[str, ...], health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name if name in there else None)
    assert healths(doctor.programs(site())) == [health]


@pytest.mark.parametrize(
    ("offsets", "health", "said"),
    [
        ({"the API": 0.4, "the cluster": -0.6}, WELL, "agree"),
        ({"the API": 0.0, "the cluster": -40.0}, WRONG, "the API is 40 s ahead of that of the cluster"),
        ({"the API": 40.0, "the cluster": 40.2}, ODD, "this machine's by 40 s"),
    ],
)
def test_clocks_are_compared_with_each_other(offsets: dict[str, float], health: Health, said: str) -> None:
    (found,) = doctor.clocks(site(offsets=offsets))
    assert (found.health, said in found.text) == (health, True), found


class Controllers:
    """A cluster that answers reads of one sort with a fault; everything else is there, without namespaces."""

    def __init__(self, *, silent: str) -> None:
        self._silent = silent

    async def get(self, path: str) -> bytes:
        if self._silent in path:
            raise ApiError(status=500, reason="InternalError", message="etcd is away")
        return b"{}"

    async def pages(self, path: str, *, selector: str = "") -> AsyncIterator[Page]:
        yield msgspec.convert({"metadata": {}}, Page)


@pytest.mark.parametrize("silent", ["customresourcedefinitions", "serviceaccounts"])
def test_an_account_that_cannot_be_read_is_not_called_absent(silent: str) -> None:
    """An administrator would name another account, and trust it."""
    with (
        site(cluster=Controllers(silent=silent)) as there,
        pytest.raises(Unseen, match=r"cannot be read: etcd is away"),
    ):
        list(accounts.operators(there))


class Listed:
    """A cluster that lists these objects by path; it does not know other kinds."""

    def __init__(self, objects: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._objects = objects

    async def pages(self, path: str, *, selector: str = "") -> AsyncIterator[Page]:
        if path not in self._objects:
            raise NotFoundError(status=404, reason="NotFound", message="no such kind")
        items = [msgspec.Raw(msgspec.json.encode(each)) for each in self._objects[path]]
        yield msgspec.convert({"metadata": {}, "items": items}, Page)


def answered(reasons: Mapping[str, str]) -> Listed:
    """Queues that were answered so."""

    def queue(name: str, reason: str) -> dict[str, Any]:
        condition = {"type": "Accepted", "reason": reason, "message": f"{name} says"}
        return {"metadata": {"name": name}, "status": {"conditions": [condition]}}

    return Listed({"/apis/queuer.dev/v1/queues": [queue(*each) for each in reasons.items()]})


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ({}, ["no objects configure Queuer"]),
        ({"a": "InForce", "b": "InForce"}, ["2 objects are in force"]),
        ({"a": "SetRefused", "b": "Invalid"}, ["queues/b is refused: b says"]),
        ({"a": "SetRefused", "b": "SetRefused"}, ["queues/a is refused: a says"]),
    ],
)
def test_an_object_that_is_refused_is_named(reasons: dict[str, str], said: list[str]) -> None:
    with site(cluster=answered(reasons)) as there:
        found = list(cluster_checks.config_objects(there))
    assert [each.text for each in found] == said
    assert {each.health for each in found} == {WRONG if "refused" in said[0] else WELL}


def jobs(managed: set[str], **suspended: bool) -> Listed:
    """Jobs named after namespace and number, suspended or not, in namespaces that are managed or not."""
    spaces = [
        {"metadata": {"name": space, "labels": {MANAGED: "true"} if space in managed else {}}}
        for space in "ab"
    ]
    made = [
        {
            "metadata": {"namespace": name[0], "name": name, "uid": name, "labels": {QUEUE: "root.a"}},
            "spec": {"suspend": waits, "template": {"spec": {"containers": []}}},
        }
        for name, waits in suspended.items()
    ]
    return Listed({"/api/v1/namespaces": spaces, "/apis/batch/v1/jobs": made})


def test_jobs_that_hang_in_a_namespace_that_is_not_managed_are_named() -> None:
    """Guards against jobs that wait for ever after their namespace opted out, with all checks well."""
    with site(cluster=jobs({"b"}, a1=True, a2=True, a3=False, b1=True)) as there:
        (found,) = cluster_checks.unmanaged(there)
    said = "2 suspended jobs have a queue label in namespace a, which is not managed: a1, a2"
    assert (found.health, found.text) == (ODD, said)
    assert found.fix.startswith(f"kubectl label namespace a {MANAGED}=true")
    with site(cluster=jobs({"a", "b"}, a1=True)) as there:
        assert healths(cluster_checks.unmanaged(there)) == [WELL]


@pytest.mark.parametrize(("labelled", "health"), [(("a", "b"), WELL), (("a",), ODD), ((), WRONG)])
def test_a_level_that_no_node_has_is_a_fault(labelled: tuple[str, ...], health: Health) -> None:
    nodes = {name: {HOSTNAME: name, **({RACK: "r1"} if name in labelled else {})} for name in ("a", "b")}
    assert healths(levels(nodes, tree(topology=Topology(keys=(RACK, HOSTNAME))))) == [health]


def test_nodes_that_no_pod_can_be_pinned_to_are_told() -> None:
    """Guards against jobs that never land there, or on the other node, with all checks well."""
    nodes = {"a": {HOSTNAME: "x"}, "b": {HOSTNAME: "x"}, "c": {}, "d": {HOSTNAME: "d"}}
    _, without, alike = levels(nodes, tree(topology=Topology()))
    assert [without.health, alike.health] == [ODD, ODD]
    assert f"lack the label {HOSTNAME}: c;" in without.text
    assert f"share a value of {HOSTNAME}: a, b;" in alike.text


def test_nodes_without_flavor_and_flavors_without_nodes_are_told() -> None:
    h100, a100 = (Flavor(name=name, node_labels={"gpu": name}) for name in ("h100", "a100"))
    nodes: dict[str, dict[str, str]] = {"a": {"gpu": "h100"}, "b": {}}
    found = list(flavors(nodes, tree(flavors=(h100, a100))))
    assert healths(found) == [ODD, ODD]
    assert "1 of 2 nodes belong to no flavor: b" in found[0].text
    assert "no node belongs to flavor a100, which asks for gpu=a100" in found[1].text
    assert healths(flavors(nodes, tree())) == [WELL]
    assert healths(flavors({"a": nodes["a"]}, tree(flavors=(h100,)))) == [WELL]


@pytest.mark.parametrize(
    ("label", "value", "health", "said"),
    [
        (MANAGED, "true", WELL, ""),
        (MANAGED, "false", WELL, ""),
        (MANAGED, "yes", WRONG, f"kubectl label namespace team-a --overwrite {MANAGED}=true"),
        ("queuer.dev/mangaed", "true", WRONG, f"queuer.dev/mangaed- {MANAGED}=true"),
        ("example.com/managed", "true", WELL, ""),
    ],
)
def test_opting_in_is_spelled_right(label: str, value: str, health: Health, said: str) -> None:
    queue = Queue(path="root", namespaces=("team-a",))
    (found,) = namespaces({"team-a": {label: value}}, tree(queue))
    assert (found.health, said in found.fix) == (health, True), found


def test_a_managed_namespace_without_a_queue_is_told_where_queues_are_known() -> None:
    spaces = {"team-a": {MANAGED: "required"}}
    (found,) = namespaces(spaces, tree())
    assert (found.health, "no queue names it" in found.text) == (ODD, True)
    assert healths(namespaces(spaces, None)) == [WELL]


def seen(site: Any) -> dict[str, Finding]:
    """The findings by check, one each."""
    with site:
        return dict(doctor.examine(site))


@pytest.fixture
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.usefixtures("nothing_else")
def test_who_is_not_logged_in_is_told_how_and_the_rest_is_unknown() -> None:
    found = seen(site({"/meta": {"version": __version__, "authentication": ["token"]}}))
    assert [found[name].health for name in ("api", "identity", "controller")] == [WELL, WELL, Health.UNKNOWN]
    assert "kubectl create token" in found["controller"].fix


@pytest.mark.usefixtures("nothing_else")
def test_a_server_that_is_away_leaves_the_rest_unknown() -> None:
    """And nothing after it is said to be well."""
    away = doctor.Installation(client=Client("http://127.0.0.1:1"))
    found = seen(away)
    unseen = {name for name, finding in found.items() if finding.health is Health.UNKNOWN}
    assert (found["api"].health, unseen) == (WRONG, {"controller", "database", "kubernetes", "clocks"})
    assert "no other clock" in found["clocks"].text
    assert away.client.server_time() is None

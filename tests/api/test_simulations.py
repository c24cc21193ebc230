"""Whether a job would start is decided in a process of its own, on the newest cycle, and nothing is written."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api import simulator
from queuer.api.simulator import AT_ONCE
from queuer.domain.workload import Workload
from queuer.solver.stored import encode
from tests.api.identity import Api
from tests.api.problems import problem_of
from tests.api.rows import GPU, Author
from tests.api.test_why import decided
from tests.store.support import workload

ROOT: dict[str, Any] = {"namespaces": ["team-a"]}
FREE: dict[str, Any] = {
    "apiVersion": "queuer.dev/v1", "kind": "QueueTree", "queues": {"root": ROOT},
    "topology": {"levels": ["topology.kubernetes.io/rack"]},
}  # fmt: skip


def ruled(**root: Any) -> dict[str, Any]:
    """The tree with more said of its only queue."""
    return {**FREE, "queues": {"root": {**ROOT, **root}}}


JOB: dict[str, Any] = {
    "apiVersion": "batch/v1", "kind": "Job",
    "metadata": {"name": "train", "namespace": "team-a", "labels": {"queuer.dev/queue": "root"}},
    "spec": {
        "parallelism": 2, "completions": 2,
        "template": {"spec": {"priorityClassName": "high", "containers": [
            {"name": "main", "image": "x", "resources": {"limits": {GPU: "8", "cpu": "1"}}},
        ]}},
    },
}  # fmt: skip
POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "notebook", "namespace": "team-a", "labels": {"queuer.dev/queue": "root"}},
    "spec": JOB["spec"]["template"]["spec"],
}  # fmt: skip


def changed(manifest: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    """The manifest with another value there."""
    made = place = deepcopy(manifest)
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return made


async def keep(author: Author, *also: Workload, tree: dict[str, Any] = FREE, **facts: Any) -> None:
    """Two racks of two nodes of eight GPUs; another team's job of three nodes in one rack waits for ever. `also`: wait
    too, `facts`: are told with the cycle.
    """
    await author.tree(tree)
    cycle = decided(
        workload("b1", queue="root", namespace="team-b", name="secret-b", pods=3, gpus=8, required="rack"),
        *also,
    )
    await author.cycle()
    await author.keep(encode(replace(cycle, priorities={"": 0, "low": 1, "high": 5}, **facts)))


async def ask(api: Api, **body: Any) -> dict[str, Any]:
    """The answer for a job of one node in root, unless said otherwise."""
    asked = {"shape": "1xgpu:8", "queue": "root", "namespace": "team-a", **body}
    found = await api.post("/api/v1/simulations", json=asked)
    assert found.status_code == 200, found.text
    told: dict[str, Any] = found.json()
    return told


async def rows(engine: AsyncEngine) -> list[int]:
    """How many rows the tables have that an answer could write."""
    async with engine.connect() as connection:
        tables = ("workload", "event", "changeset", "draft", "audit", "cycle", "reason_transition", "queue")
        return [
            (await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() for table in tables
        ]


async def test_a_job_would_start_wait_or_never_start(api: Api, author: Author, engine: AsyncEngine) -> None:
    await keep(author)
    before = await rows(engine)
    starts = (await api.post("/api/v1/simulations", json={"job": JOB, "priority": 5})).json()
    assert (starts["answer"], starts["label"]) == ("starts", "feasible at cycle 1, not a reservation")
    assert sum(starts["places"][0]["nodes"].values()) == 2
    assert starts["warnings"] == []
    shape = {"queue": "root", "namespace": "team-a", "required": "rack"}
    never = (await api.post("/api/v1/simulations", json={**shape, "shape": "3xgpu:8"})).json()
    assert (never["answer"], never["primary"]["token"]) == ("unstartable", "TopologyPlacementFailed")
    assert never["wouldAdmit"][0]["change"] == "pods anywhere"
    lower = ruled(quota=[{"resource": GPU, "limit": 8}])
    cut = (await api.post("/api/v1/simulations", json={"job": JOB, "queueTree": lower})).json()
    assert (cut["answer"], cut["primary"]["token"]) == ("unstartable", "ExceedsMaxQuota")
    other = (await api.post("/api/v1/simulations", json={"job": JOB, "queue": "root.zz"})).json()
    assert (other["answer"], other["primary"]["token"]) == ("unstartable", "Misconfigured")
    assert await rows(engine) == before


async def test_a_pod_is_simulated_as_the_pods_that_it_queues_with(api: Api, author: Author) -> None:
    """A manifest has one pod of a group: the others are taken to be like it."""
    await keep(author)
    alone = (await api.post("/api/v1/simulations", json={"job": POD})).json()
    assert (alone["answer"], alone["warnings"]) == ("starts", [])
    assert sum(alone["places"][0]["nodes"].values()) == 1
    labels = {"queuer.dev/queue": "root", "queuer.dev/pod-group": "ring"}
    notes = {"queuer.dev/pod-group-size": "3"}
    meta = {**POD["metadata"], "labels": labels, "annotations": notes}
    group = (await api.post("/api/v1/simulations", json={"job": {**POD, "metadata": meta}})).json()
    assert sum(group["places"][0]["nodes"].values()) == 3
    assert group["warnings"] == ["all 3 pods of the group are taken to be like this one"]


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("TrainJob", "queuer sim shape"),
        ("CronJob", "spec.jobTemplate"),
        ("Deployment", "a Pod with its spec.template"),
    ],
)
async def test_what_has_no_pods_in_its_manifest_is_refused_with_what_can_be_asked(
    api: Api, author: Author, kind: str, hint: str
) -> None:
    await keep(author)
    found = await api.post("/api/v1/simulations", json={"job": {**JOB, "kind": kind}})
    error = problem_of(found, "invalid_input")["errors"][0]
    assert (error["pointer"], hint in error["hint"]) == ("/job/kind", True)


_LIMITS = ("containers", 0, "resources", "limits")


@pytest.mark.parametrize(
    ("job", "pointer"),
    [
        (changed(JOB, "spec", to=3), "/job/spec"),
        (changed(JOB, "spec", "parallelism", to="x"), "/job/spec/parallelism"),
        (changed(JOB, "spec", "parallelism", to=0), "/job/spec"),
        (changed(JOB, "spec", "template", "spec", *_LIMITS, to={GPU: "x"}), "/job/spec/template/spec/containers"),
        (changed(POD, "spec", *_LIMITS, to={GPU: "x"}), "/job/spec/containers"),
        (changed(JOB, "metadata", "annotations", to={"queuer.dev/max-runtime": "-5"}),
         "/job/metadata/annotations/queuer.dev~1max-runtime"),
        (changed(JOB, "metadata", "labels", to={"queuer.dev/queue": "Root"}),
         "/job/metadata/labels/queuer.dev~1queue"),
        (changed(JOB, "metadata", "labels", "queuer.dev/priority-class", to="hihg"),
         "/job/metadata/labels/queuer.dev~1priority-class"),
        (changed(JOB, "spec", "template", "spec", "priorityClassName", to="system-x"), "/job"),
    ],
)  # fmt: skip
async def test_a_fault_of_the_manifest_is_told_by_its_place_in_the_body(
    api: Api, author: Author, job: dict[str, Any], pointer: str
) -> None:
    """Fields of a pod, which has its name before them in the words of intake, labels and annotations included."""
    await keep(author)
    found = problem_of(await api.post("/api/v1/simulations", json={"job": job}), "invalid_input")
    assert [error["pointer"] for error in found["errors"]] == [pointer]


async def test_who_is_in_the_way_is_not_named_to_others(shared: Api, author: Author) -> None:
    """And only those who may see a namespace's jobs may ask for one."""
    await keep(author, tree=ruled(policy={"order": "strict"}))
    found = await shared.post(
        "/api/v1/simulations", json={"job": JOB, "priority": 0}, headers={"user": "alice"}
    )
    assert found.json()["primary"]["token"] == "BehindInQueue"
    assert "secret-b" not in found.text
    denied = await shared.post("/api/v1/simulations", json={"job": JOB}, headers={"user": "eve"})
    problem_of(denied, "forbidden")


async def test_the_priority_is_that_of_the_class(api: Api, author: Author) -> None:
    """A class that is not there is told as intake would, with those that are."""
    await keep(author, tree=ruled(access={"maxPriority": "low"}))
    refused = (await api.post("/api/v1/simulations", json={"job": JOB})).json()
    assert refused["answer"] == "unstartable"
    assert "priority 5 is above 1, the most that queue root allows" in refused["primary"]["text"]
    assert (await ask(api, priority=1))["answer"] == "starts"
    labels = {"queuer.dev/queue": "root", "queuer.dev/priority-class": "hihg"}
    unknown = {**JOB, "metadata": {**JOB["metadata"], "labels": labels}}
    found = await api.post("/api/v1/simulations", json={"job": unknown})
    problem = problem_of(found, "invalid_input")
    assert "high" in problem["errors"][0]["hint"]


@pytest.mark.parametrize(
    ("root", "asked", "answer", "token", "text"),
    [
        ({"access": {"users": ["bob"]}}, {"user": "alice"}, "unstartable", "Misconfigured", "it is for user bob"),
        ({"access": {"users": ["bob"]}}, {"user": "bob"}, "starts", None, ""),
        ({"access": {"groups": ["ml"]}}, {"user": "alice", "groups": ["x"]}, "unstartable", "Misconfigured",
         "for group ml"),
        ({"access": {"groups": ["ml"]}}, {"user": "alice", "groups": ["ml"]}, "starts", None, ""),
        ({"access": {"maxRuntime": "1h"}}, {}, "unstartable", "Misconfigured", "promises no end"),
        ({"access": {"maxRuntime": "1h"}}, {"maxRuntime": "30m"}, "starts", None, ""),
        ({"access": {"maxPending": 1}}, {}, "waits", "BehindInQueue", "1 job of namespace team-a waits in root before"),
        ({"state": "draining"}, {}, "waits", "Suspended", "drains"),
        ({"state": "held"}, {}, "waits", "Suspended", "held"),
        ({"access": {"perUser": {"limits": {GPU: 4}}}}, {}, "unstartable", "ExceedsMaxQuota",
         "may have 4 at most in root"),
        (
            {"access": {"perUser": {"limits": {GPU: 8}}}}, {"user": "alice"}, "waits", "WaitingForQuota",
            "user alice has 8 of 8 gpu in root (perUser); this job asks 8.",
        ),
        ({"access": {"perUser": {"maxRunning": 1}}}, {"user": "alice"}, "waits", "WaitingForQuota", "has 1 of 1 jobs"),
        ({"access": {"perUser": {"maxRunning": 1}}}, {"user": "carol"}, "starts", None, ""),
    ],
)  # fmt: skip
async def test_the_answer_keeps_to_the_rules_of_the_queue(
    api: Api, author: Author, root: dict[str, Any], asked: dict[str, Any], answer: str,
    token: str | None, text: str,
) -> None:  # fmt: skip
    """As intake and the limits of users do. A job of alice started in the cycle; it is not recorded yet."""
    started = workload("a1", queue="root", user="alice", gpus=8)
    await author.submit(started)
    await keep(author, started, tree=ruled(**root))
    found = await ask(api, **asked)
    assert (found["answer"], (found["primary"] or {}).get("token")) == (answer, token)
    assert text in (found["primary"] or {}).get("text", "")


async def test_what_nobody_looked_at_is_said(api: Api, author: Author) -> None:
    await keep(author, unseen={"team-a": ("ResourceQuota",), "team-b": ("LimitRange",)})
    found = await ask(api)
    assert found["notConsidered"] == ["ResourceQuota"]
    assert found["warnings"] == ["the ResourceQuotas of namespace team-a were not considered"]


async def test_only_who_sees_all_jobs_asks_for_another_user(shared: Api, author: Author) -> None:
    """The answer tells what that user has."""
    await keep(author)
    body = {"shape": "1xgpu:8", "queue": "root", "namespace": "team-a"}
    for user, status in (("alice", 200), ("bob", 403)):
        found = await shared.post(
            "/api/v1/simulations", json={**body, "user": user}, headers={"user": "alice"}
        )
        assert found.status_code == status, found.text


@pytest.fixture
def stingy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No budget comes back, however long the test takes. Name it before `api`."""
    monkeypatch.setattr(simulator, "A_MINUTE", 0.0)


async def test_nobody_asks_all_the_time(stingy: None, api: Api, author: Author) -> None:
    await keep(author)
    body = {"shape": "1xgpu:8", "queue": "root", "namespace": "team-a"}
    answers = [await api.post("/api/v1/simulations", json=body) for _ in range(int(AT_ONCE) + 1)]
    assert 429 not in [found.status_code for found in answers[:-1]]
    problem_of(answers[-1], "too_many")
    assert answers[-1].headers["retry-after"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "job"),
        ({"job": {"kind": "Deployment"}}, "job.kind"),
        ({"job": {**JOB, "spec": 3}}, "job.spec"),
        ({"job": JOB, "queue": "Root"}, "queue"),
        ({"job": {**JOB, "metadata": {"name": "train"}}}, "queue"),
        ({"shape": "8gpu", "queue": "root", "namespace": "team-a"}, "shape"),
        ({"shape": "8xgpu:8"}, "queue"),
        ({"shape": "8xtpu:8", "queue": "root", "namespace": "team-a"}, "shape"),
        ({"shape": "1xgpu:1", "queue": "root", "namespace": "team-a", "colour": 1}, "colour"),
        ({"shape": "1xgpu:1", "queue": "root", "namespace": "team-a", "priority": 1e300}, "priority"),
        ({"shape": "1xgpu:1", "queue": "root", "namespace": "team-a", "groups": ["ml"]}, "groups"),
    ],
)
async def test_what_cannot_be_asked_is_told_by_field(
    api: Api, author: Author, body: dict[str, Any], field: str
) -> None:
    await keep(author)
    found = problem_of(await api.post("/api/v1/simulations", json=body), "invalid_input")
    assert field in {error["field"] for error in found["errors"]}


async def test_without_a_cycle_there_is_no_answer(api: Api, author: Author) -> None:
    await author.tree(FREE)
    problem_of(await api.post("/api/v1/simulations", json={"job": JOB}), "not_found")
    problem_of(await api.get("/api/v1/topology"), "not_found")


async def test_the_map_and_its_slots(api: Api, author: Author) -> None:
    await keep(author)
    found = (await api.get("/api/v1/topology", params={"level": "rack", "limit": 1})).json()
    assert (found["resource"], found["free"], found["largestFree"], found["leftOut"]) == (GPU, "32", "16", 1)
    assert found["fragmentation"] == 0.5
    assert (found["used"], found["outside"], found["reserved"]) == ("0", "0", "0")
    hosts = (await api.get("/api/v1/topology", params={"level": "host"})).json()["domains"]
    assert {host["parent"] for host in hosts} == {"r0", "r1"}
    table = (await api.get("/api/v1/topology/slots", params={"shape": "2xgpu:8"})).json()
    assert [(row["level"], row["gangs"], row["fittingDomains"]) for row in table["rows"]] == [
        ("rack", 2, 2), ("host", 0, 0), ("any", 2, 1),
    ]  # fmt: skip
    assert [row["places"] for row in table["rows"]] == [[], [], []]
    of_racks = (await api.get("/api/v1/topology/slots", params={"shape": "2xgpu:8", "level": "rack"})).json()
    assert sorted(of_racks["rows"][0]["places"]) == ["r0", "r1"]
    for path, field in (
        ("topology?level=zone", "level"),
        ("topology?resource=tpu", "resource"),
        ("topology/slots?shape=2xgpu:8&level=zone", "level"),
        ("topology/slots?shape=2xgpu:8&flavor=zone", "flavor"),
    ):
        wrong = problem_of(await api.get(f"/api/v1/{path}"), "invalid_input")
        assert wrong["errors"][0]["field"] == field


async def test_a_job_that_names_an_inner_queue_is_placed_by_rule(api: Api, author: Author) -> None:
    await keep(author)
    new = {**FREE, "queues": {
        "root": {**ROOT, "placement": [{"namespace": "team-a", "queue": "root.new"}]},
        "root.new": {},
    }}  # fmt: skip
    found = (await api.post("/api/v1/simulations", json={"job": JOB, "priority": 5, "queueTree": new})).json()
    assert found["answer"] == "starts"
    elsewhere = {"queue": "root", "namespace": "team-b", "shape": "1xgpu:1", "queueTree": new}
    stays = (await api.post("/api/v1/simulations", json=elsewhere)).json()
    assert "none of its placement rules is for namespace team-b" in stays["primary"]["text"]

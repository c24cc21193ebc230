"""A queue's figures beside its amounts: headroom, its line, its past, fair share."""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from queuer.controller.landing.writes import resting
from queuer.controller.memory.live import Live
from queuer.domain.nodes import Node, Topology
from queuer.domain.outside import Outside
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State, Workload
from queuer.solver.decide import decide
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Snapshot
from queuer.solver.stored import StoredCycle, encode
from queuer.store import outbox, rollup, workloads
from queuer.store.config import load_config
from queuer.store.engine import begin
from queuer.store.tables import EntryKind, NotAsked
from queuer.store.workloads import Intake
from tests.api.cli import run
from tests.api.identity import EVERYTHING, Table, local, reads
from tests.api.problems import problem_of
from tests.api.rows import GPU, TREE, Author, waits
from tests.store.support import NOW, Eviction, workload

A, B = "root.research.team-a", "root.research.team-b"
RACK = "topology.kubernetes.io/rack"
GREEDY = Budget(deterministic=0.0)
USERS = Table({"alice": frozenset({reads("team-a")}), "root": frozenset({EVERYTHING})})
PER_NODE = {GPU: 8, "cpu": 64000, "pods": 9}


@pytest_asyncio.fixture
async def shared(engine: AsyncEngine, database_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """An API with users."""
    transport = httpx2.ASGITransport(
        app=create_app(engine, local(database_url), USERS), raise_app_exceptions=False
    )
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
        yield client


async def decided(author: Author, *waiting: Workload, runs: Sequence[Workload] = ()) -> None:
    """A cycle over two racks of two nodes on the tree as it is, recorded and kept; `runs`: one a node."""
    async with begin(author.engine) as connection:
        tree = (await load_config(connection)).tree
    held = {f"n{i}": made for i, made in enumerate(runs)}
    snapshot = Snapshot(
        nodes=tuple(
            NodeState(
                node=Node(name=f"n{i}", labels={RACK: f"r{i // 2}"}, allocatable=PER_NODE),
                used=held[f"n{i}"].demand if f"n{i}" in held else {},
            )
            for i in range(4)
        ),
        tree=tree,
        topology=Topology(keys=(RACK,)),
        admitted=tuple(
            Admitted(
                workload=made, counts={"main": 1}, flavors={"main": "default"}, since=NOW - 60,
                bound={name: made.demand},
            )
            for name, made in held.items()
        ),
        pending=tuple(Pending(workload=made) for made in waiting),
    )  # fmt: skip
    plan = decide(snapshot, now=NOW, seed=0, budget=GREEDY)
    await author.submit(*waiting, *runs)
    await author.cycle(admit=runs, explain=plan.explanations)
    await author.keep(encode(StoredCycle(snapshot=snapshot, now=NOW, seed=0, budget=GREEDY, plan=plan)))


async def test_headroom_says_what_may_start_and_what_is_in_the_way(
    api: httpx2.AsyncClient, author: Author
) -> None:
    await author.tree()
    assert "No cycle" in (await api.get(f"/api/v1/queues/{A}/headroom")).json()["text"]
    runs = [workload("b1", queue=B, gpus=6)]
    await decided(author, runs=runs)
    found = (await api.get(f"/api/v1/queues/{A}/headroom", params={"shape": "gpu:4,cpu:8"})).json()
    gpus, cpu = found["rows"]
    assert (gpus["resource"], gpus["mayStartNow"], gpus["pods"], gpus["cappedBy"]) == (
        GPU,
        "24",
        6,
        "capacity",
    )
    assert (cpu["resource"], cpu["mayStartNow"]) == ("cpu", "48")
    assert (gpus["own"], gpus["borrowable"], gpus["free"], gpus["used"]) == ("32", "0", "26", "0")
    assert gpus["largestGang"] == {"rack": 4, "host": 2}
    live = [room for room in gpus["rooms"] if room["queue"] == "root" and room["flavor"] is None]
    assert [(room["limit"], room["room"], room["live"]) for room in live] == [("32", "26", True)]
    assert f"{A} may start 24 gpu now" in found["text"]
    assert (found["cycle"], found["controller"]["state"]) == (1, "idle")
    (one,) = (await api.get(f"/api/v1/queues/{A}/headroom")).json()["rows"]
    assert (one["pod"], one["mayStartNow"]) == ({GPU: "1", "pods": "1"}, "26")
    assert (one["reclaimable"], one["reclaimedFrom"]) == ("0", []), "it borrows nothing"


async def test_headroom_says_what_may_be_taken_back_from_borrowers(
    api: httpx2.AsyncClient, author: Author
) -> None:
    """Its jobs go while the queue uses more than it is guaranteed, the last one across that line."""
    small = {**TREE["queues"][B], "quota": [{"resource": GPU, "guaranteed": 8}]}
    await author.tree({**TREE, "queues": {**TREE["queues"], B: small}})
    await decided(author, runs=[workload(f"b{i}", queue=B, gpus=6) for i in range(4)])
    found = (await api.get(f"/api/v1/queues/{A}/headroom")).json()
    (gpus,) = found["rows"]
    assert (gpus["mayStartNow"], gpus["reclaimable"], gpus["reclaimedFrom"]) == ("8", "18", [B])
    assert f"and up to 18 more by taking back what {B} borrows" in found["text"]
    whole = await api.get(f"/api/v1/queues/{A}/headroom", params={"shape": "gpu:8"})
    (gpus,) = whole.json()["rows"]
    assert (gpus["mayStartNow"], gpus["reclaimable"]) == ("0", "24"), "with the 2 that are free on each node"
    (gpus,) = (await api.get(f"/api/v1/queues/{B}/headroom")).json()["rows"]
    assert (gpus["reclaimable"], gpus["reclaimedFrom"]) == ("0", [])


async def test_a_limit_and_a_closed_queue_are_named(api: httpx2.AsyncClient, author: Author) -> None:
    queues = {**TREE["queues"], A: {"quota": [{"resource": GPU, "guaranteed": 2, "limit": 5}]}}
    held = {**queues, B: {**queues[B], "state": "held"}}
    await author.tree({**TREE, "queues": held})
    await decided(author)
    (row,) = (await api.get(f"/api/v1/queues/{A}/headroom")).json()["rows"]
    assert (row["mayStartNow"], row["own"], row["borrowable"]) == ("5", "2", "3")
    assert (row["cappedBy"], row["ancestor"]) == ("limit", A)
    closed = (await api.get(f"/api/v1/queues/{B}/headroom")).json()
    (row,) = closed["rows"]
    assert (row["mayStartNow"], row["pods"], row["cappedBy"], row["ancestor"]) == ("0", 0, "held", B)
    assert f"{B} is held: nothing new starts there" in closed["text"]
    inner = (await api.get("/api/v1/queues/root.research/headroom")).json()
    (row,) = inner["rows"]
    assert (row["mayStartNow"], row["below"], row["cappedBy"]) == (None, "32", "capacity")
    assert "they go to the leaves below it. All of them together may start 32" in inner["text"]


async def test_what_one_user_may_have_is_a_cap_of_theirs(shared: httpx2.AsyncClient, author: Author) -> None:
    limited = {"users": ["alice"], "maxRuntime": "1h", "perUser": {"limits": {GPU: 12}}}
    await author.tree(
        {**TREE, "queues": {**TREE["queues"], A: {"namespaces": ["team-a"], "access": limited}}}
    )
    await decided(author, runs=[workload("a1", queue=A, gpus=5, user="alice")])
    path = f"/api/v1/queues/{A}/headroom"
    mine = (await shared.get(path, headers={"user": "alice"})).json()
    assert [(r["mayStartNow"], r["cappedBy"], r["ancestor"]) for r in mine["rows"]] == [("7", "perUser", A)]
    assert [r["room"] for r in mine["rows"][0]["rooms"] if r["perUser"]] == ["7"]
    assert "what one user may have in root.research.team-a (perUser) is the cap" in mine["text"]
    assert "Jobs must promise to end within 1h (maxRuntime)." in mine["text"]
    other = (await shared.get(path, headers={"user": "root"})).json()
    assert other["rows"][0]["mayStartNow"] == "12"
    assert "root is not among those who may use it." in other["text"]
    asked = (await shared.get(path, params={"user": "alice"}, headers={"user": "root"})).json()
    assert asked["rows"] == mine["rows"]
    denied = await shared.get(path, params={"user": "root"}, headers={"user": "alice"})
    problem_of(denied, status=403, code="forbidden")


@pytest.mark.parametrize(
    "shape", ["", "gpu", "gpu:x", "tpu:1", "gpu:0", "gpu:1,gpu:2", "gpu:1.5", ",".join(["cpu:1"] * 20)]
)
async def test_a_wrong_shape_is_refused_by_name(api: httpx2.AsyncClient, author: Author, shape: str) -> None:
    await author.tree()
    await decided(author)
    wrong = await api.get(f"/api/v1/queues/{A}/headroom", params={"shape": shape})
    assert problem_of(wrong, status=422, code="invalid_input")["errors"][0]["field"] == "shape"


BUSY = workload("busy", queue=B, gpus=8)


def jobs() -> list[Workload]:
    """Ten that do not fit while `BUSY` runs: of team-a and team-b in turn, and two on hold."""
    return [
        workload(
            f"{'ab'[n % 2]}{n}", queue=(A, B)[n % 2], namespace=f"team-{'ab'[n % 2]}", gpus=8, pods=4,
            submitted=NOW + n, name=f"secret-{'ab'[n % 2]}{n}",
        )
        for n in range(10)
    ]  # fmt: skip


async def pages(api: httpx2.AsyncClient, path: str, *, user: str = "", limit: int = 3) -> list[Any]:
    """All entries, page by page."""
    found: list[Any] = []
    params = {"limit": str(limit)}
    while True:
        answer = await api.get(f"/api/v1/queues/{path}/pending", params=params, headers={"user": user})
        assert user != "alice" or "secret-b" not in answer.text
        page = answer.json()
        found += page["items"]
        if page["next"] is None:
            return found
        params["cursor"] = page["next"]


async def test_the_line_is_in_the_order_of_the_cycle(shared: httpx2.AsyncClient, author: Author) -> None:
    await author.tree()
    made = jobs()
    made[4] = replace(made[4], priority=5)
    never = workload("never", queue=A, priority=9, gpus=99, submitted=NOW)  # it is ahead of nobody
    await decided(author, *made, never, runs=[BUSY])
    await author.submit(workload("new", queue=A, priority=9, submitted=NOW + 99))
    for limit in (1, 3, 100):
        items = await pages(shared, A, user="root", limit=limit)
        assert [(i["rank"], i["workload"]["uid"]) for i in items] == [
            (1, "a4"), (2, "a0"), (3, "a2"), (4, "a6"), (5, "a8"), (None, "new"), (None, "never"),
        ]  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_others_are_runs_of_counts_and_amounts(
    shared: httpx2.AsyncClient, author: Author, limit: int
) -> None:
    await author.tree()
    await decided(author, *jobs(), runs=[BUSY])
    items = await pages(shared, "root", user="alice", limit=limit)
    mine = [i["workload"]["uid"] for i in items if "workload" in i]
    runs = [i for i in items if "gangs" in i]
    assert mine == ["a0", "a2", "a4", "a6", "a8"]
    assert sum(run["gangs"] for run in runs) == 5
    assert {run["amounts"][GPU] for run in runs} == {str(32 * run["gangs"]) for run in runs}
    places = [
        p for i in items for p in ([i["rank"]] if "workload" in i else range(i["first"], i["last"] + 1))
    ]
    assert places == list(range(1, 11))
    wrong = await shared.get(
        "/api/v1/queues/root/pending", params={"cursor": "WzEsIDJd"}, headers={"user": "alice"}
    )
    problem_of(wrong, status=422, code="invalid_input")


async def test_a_page_goes_on_where_the_last_one_ended_though_some_have_left(
    shared: httpx2.AsyncClient, author: Author
) -> None:
    await author.tree()
    await decided(author, *jobs(), runs=[BUSY])
    headers = {"user": "root"}
    first = (await shared.get(f"/api/v1/queues/{A}/pending?limit=2", headers=headers)).json()
    await author.delete("a0")
    rest = await shared.get(f"/api/v1/queues/{A}/pending?limit=9&cursor={first['next']}", headers=headers)
    assert [i["workload"]["uid"] for i in rest.json()["items"]] == ["a4", "a6", "a8"]


async def test_fair_share_tells_factors_and_who_has_what_is_lacking(
    api: httpx2.AsyncClient, author: Author
) -> None:
    queues = {
        **TREE["queues"],
        A: {"quota": [{"resource": GPU, "guaranteed": 16}]},
        B: {"quota": [{"resource": GPU, "guaranteed": 8}], "weight": 2},
    }
    await author.tree({**TREE, "queues": queues})
    runs = [workload(f"b{n}", queue=B, gpus=8, preemptible=False) for n in range(3)]
    await decided(author, workload("a1", queue=A, gpus=8, pods=2), runs=runs)
    found = (await api.get("/api/v1/fair-share")).json()
    b = next(row for row in found["items"] if row["path"] == B)
    assert (b["weight"], b["guaranteed"][GPU], b["used"][GPU], b["orderedBy"]) == (2, "8", "24", "share")
    assert (b["now"]["resource"], b["now"]["excess"], b["now"]["capacity"]) == (GPU, "16", "32")
    for row in found["items"]:
        for told in filter(None, (row["now"], row["offered"])):
            assert told["score"] == told["share"] + told["past"]
    assert b["now"]["share"] == 16 / 32 / 2
    a = next(row for row in found["items"] if row["path"] == A)
    assert (a["entitled"], a["offered"] is None) == (True, False)
    assert found["deficits"] == [{"queue": A, "resource": GPU, "amount": "16"}]
    assert [(p["starved"], p["borrower"], p["amount"]) for p in found["pairs"]] == [(A, B, "16")]
    inside = (await api.get("/api/v1/fair-share", params={"root": "root.research"})).json()
    assert [row["path"] for row in inside["items"]] == [A, B]
    problem_of(await api.get("/api/v1/fair-share?root=root.nope"), status=404, code="not_found")


async def test_the_past_of_a_queue_and_how_long_who_started_had_waited(
    api: httpx2.AsyncClient, author: Author
) -> None:
    await author.tree()
    made = [workload(f"w{n}", queue=A, submitted=NOW - 10 * n) for n in range(11)]
    await author.submit(*made)
    await author.cycle(admit=made)
    begin_at = int(NOW // 3600 * 3600)
    for minute in range(20):
        async with begin(author.engine) as connection:
            await rollup.record(connection, author.epoch, at=begin_at + 60 * minute)
    since = datetime.fromtimestamp(begin_at, tz=UTC)
    params = {"since": since.isoformat(), "until": (since + timedelta(hours=1)).isoformat()}
    refused = await api.get(f"/api/v1/queues/{A}/history", params={**params, "step": "5m"})
    assert "kept for two days" in problem_of(refused, status=422, code="invalid_input")["detail"]
    found = (await api.get(f"/api/v1/queues/{A}/history", params={**params, "step": "1h"})).json()
    assert found["points"] == []  # the hour is not summed up yet
    waits = found["waits"]
    assert (waits["started"], waits["p50Seconds"], waits["p90Seconds"]) == pytest.approx((11, 51, 91))
    now = time.time()
    async with begin(author.engine) as connection:
        await rollup.record(connection, author.epoch, at=now)
    recent = (await api.get(f"/api/v1/queues/{A}/history")).json()
    (point,) = recent["points"]
    gpus = next(a for a in point["accounts"] if (a["resource"], a["flavor"]) == (GPU, None))
    assert (gpus["used"], gpus["guaranteed"], point["admittedWorkloads"]) == ("11", "32", 11)
    assert (recent["stepSeconds"], recent["waits"]) == (
        300,
        {"started": 0, "p50Seconds": None, "p90Seconds": None},
    )


async def test_history_begins_where_there_is_something_to_tell(
    api: httpx2.AsyncClient, author: Author
) -> None:
    """Guards the first step against an average with minutes before the tree was: 19 of 32 guaranteed."""
    began = (time.time() - 3600) // 300 * 300
    for minute in (-5, 0, 1, 2, 3, 4):
        if minute == 2:
            await author.tree()
        async with begin(author.engine) as connection:
            await rollup.record(connection, author.epoch, at=began + 60 * minute)
    points = (await api.get("/api/v1/queues/root/history")).json()["points"]
    told = [{a["resource"]: a["guaranteed"] for a in point["accounts"]} for point in points]
    assert told == [{}, {GPU: "64"}]
    series = (await api.get("/api/v1/overview")).json()["series"]
    assert next(s["guaranteed"] for s in series if s["resource"] == GPU)[-1] == "64"


@pytest.mark.parametrize(
    "query",
    ["step=7s", "step=x", "until=0.5", "since=2026-01-01", "since=2026-13-01T00:00:00Z",
     "step=1m&since=2020-01-01T00:00:00Z", "since=2999-01-01T00:00:00Z",
     "until=0001-01-01T00:00:00Z", "step=1h&since=0001-01-01T00:00:00Z"],
)  # fmt: skip
async def test_a_window_that_nothing_is_kept_of_is_refused(
    api: httpx2.AsyncClient, author: Author, query: str
) -> None:
    await author.tree()
    problem_of(await api.get(f"/api/v1/queues/{A}/history?{query}"), status=422, code="invalid_input")


async def test_jobs_that_run_without_a_queue_are_not_said_to_never_start(
    api: httpx2.AsyncClient, author: Author
) -> None:
    await author.tree()
    await author.misconfigured(workload("wrong", queue=A), "a field")
    await author.misconfigured(workload("lost", queue="root.gone"), "it runs", queue="root.gone", runs=True)
    told = [
        (item["severity"], item["text"]) for item in (await api.get("/api/v1/overview")).json()["attention"]
    ]
    assert told == [
        ("warning", "1 job runs, and no queue counts it: apply the tree that it was in"),
        ("info", "1 job can never start as it is"),
    ]
    listed = (await api.get("/api/v1/workloads?unstartable=true")).json()["items"]
    assert [row["uid"] for row in listed] == ["wrong"]


async def test_an_eviction_that_the_api_server_does_not_take_needs_somebody(
    api: httpx2.AsyncClient, author: Author
) -> None:
    await author.tree()
    runs = workload("runs", queue=A)
    await author.submit(runs)
    await author.cycle(admit=[runs])
    await author.evict(Eviction(uid="runs", cause="command", patch={}))
    said = "1 job is evicted, and the API server has not taken that for more than 30 s"
    told = [(item["kind"], item["text"]) for item in (await api.get("/api/v1/overview")).json()["attention"]]
    assert ("stuck", said) in told, told


async def test_an_admission_that_is_taken_back_before_it_reached_its_job_is_no_eviction(
    api: httpx2.AsyncClient, author: Author
) -> None:
    await author.tree()
    runs = workload("runs", queue=A)
    await author.submit(runs)
    await author.cycle(admit=[runs])
    undo = outbox.Effect(kind=EntryKind.WITHDRAW, uid="runs", admission_id=str(uuid4()), patch={})
    async with begin(author.engine) as connection:
        await outbox.put(connection, author.epoch, [undo], at=NOW)
    told = [item["text"] for item in (await api.get("/api/v1/overview")).json()["attention"]]
    assert not [text for text in told if "evicted" in text], told


async def test_a_job_that_needs_an_operator_is_attention_and_one_that_lacks_a_volume_is_not(
    api: httpx2.AsyncClient, author: Author
) -> None:
    """Whoever made the job makes its claim: that is a change, in the overview as in its own answer."""
    await author.tree()
    await author.submit(*(workload(uid, queue=A) for uid in ("volume", "taint")))
    live = Live(workload=workload("volume", queue=A), state=State.QUEUED, failures=2, rest=NOW + 60)
    missing = resting(live, '0/4 nodes are available: persistentvolumeclaim "data" not found')
    await author.cycle(explain={"volume": missing, "taint": resting(live, "0/4 nodes are available")})
    found = (await api.get("/api/v1/overview")).json()
    item = next(item for item in found["attention"] if item["kind"] == "escalated")
    assert (item["count"], item["text"]) == (1, "1 job needs an operator: AdmittedNotPlaced 1")
    verdicts = {(row["token"], row["verdict"]): row["jobs"] for row in found["reasons"]}
    assert verdicts == {("AdmittedNotPlaced", "CHANGE"): 1, ("AdmittedNotPlaced", "ESCALATE"): 1}
    told = (await api.get("/api/v1/workloads/volume")).json()
    assert (told["reason"]["verdict"], told["reason"]["unstartable"]) == ("CHANGE", False)
    assert "its owner has to create PersistentVolumeClaim data" in told["reason"]["text"]
    assert told["explanation"]["do"].startswith("create PersistentVolumeClaim data in namespace")


async def test_the_overview_names_what_needs_somebody(api: httpx2.AsyncClient, author: Author) -> None:
    await author.tree()
    empty = (await api.get("/api/v1/overview")).json()
    assert (empty["attention"], empty["reasons"], empty["series"], empty["counts"]) == ([], [], [], {})
    queues = {**TREE["queues"], B: {"quota": [{"resource": GPU, "guaranteed": 8, "limit": 8}]}}
    runs = [workload(f"b{n}", queue=B, gpus=8, preemptible=False) for n in range(4)]
    await decided(author, workload("a1", queue=A, gpus=8, pods=2), runs=runs)
    await author.tree({**TREE, "queues": queues})
    await author.misconfigured(workload("wrong", queue=A), "a field")
    await author.misconfigured(workload("stray", queue="short"), "no queue is named short")
    async with begin(author.engine) as connection:
        await rollup.record(connection, author.epoch, at=time.time())
    found = (await api.get("/api/v1/overview")).json()
    told = {item["kind"]: item for item in found["attention"]}
    assert list(told) == ["starved", "overLimit", "stuck", "nodesOut", "unstartable"]
    out = told["nodesOut"]
    assert (out["severity"], out["text"]) == ("info", "1 node is cordoned; 8 gpu are free there")
    assert (told["starved"]["ref"], told["overLimit"]["ref"]) == (A, B)
    assert "of 16 gpu" in told["starved"]["text"]
    assert "24 gpu" in told["overLimit"]["text"]
    assert (found["attentionTotal"], told["unstartable"]["count"]) == (len(found["attention"]), 2)
    gpus = next(c for c in found["capacity"] if c["resource"] == GPU)
    assert [gpus[part] for part in ("allocatable", "used", "free", "unplaceable")] == ["64", "32", "24", "8"]
    reasons = {r["token"]: (r["verdict"], r["jobs"], r["amounts"][GPU]) for r in found["reasons"]}
    assert reasons["Misconfigured"] == ("CHANGE", 2, "2")
    assert sum(jobs for _, jobs, _ in reasons.values()) == 3
    assert (found["counts"], len(found["at"])) == ({"Queued": 3, "Admitted": 4}, 1)
    line = next(s for s in found["series"] if s["resource"] == GPU)
    assert (line["used"], line["pending"]) == (["32"], ["16"])
    await author.beat(silent=60)
    first = (await api.get("/api/v1/overview")).json()["attention"][0]
    assert (first["kind"], first["severity"]) == ("controllerStale", "critical")


def outside(name: str, gpus: int, *, namespace: str = "team-b", **more: Any) -> Outside:
    """Pods of 8 GPUs that no queue pays for."""
    amounts = {GPU: gpus, "pods": gpus // 8}
    return Outside(namespace=namespace, kind="Job", name=name, amounts=amounts, **more)


SYSTEM = Outside(owners=2, system=True, amounts={GPU: 2, "pods": 2})


async def test_pods_that_no_queue_pays_for_are_told_with_names_to_those_who_may_have_them(
    shared: httpx2.AsyncClient, author: Author
) -> None:
    """Guards against full nodes beside "FREE 64", and against names of a namespace that the caller does not see."""
    await author.tree()
    await author.submit(workload("a1", queue=A, gpus=8, pods=5))
    strangers = [outside("big", 24), outside("mine", 8, namespace="team-a"), outside("small", 8), SYSTEM]
    await author.cycle(outside=strangers, explain={"a1": waits()})
    admin, alice = [
        (await shared.get("/api/v1/overview", headers={"user": user})).json() for user in ("root", "alice")
    ]
    gpus = next(each for each in admin["capacity"] if each["resource"] == GPU)
    parts = ("allocatable", "used", "outside", "unplaceable", "free")
    assert [gpus[part] for part in parts] == ["64", "0", "42", "8", "14"]
    rows = [(row["namespace"], row["name"], row["pods"], row["system"]) for row in admin["outside"]]
    assert rows == [
        ("team-b", "big", 3, False), ("team-a", "mine", 1, False), ("team-b", "small", 1, False),
        (None, None, 2, True),
    ]  # fmt: skip
    names = [row["name"] for row in alice["outside"]]
    assert names == [None, "mine", None, None]
    said = "40 gpu are used by pods that no queue pays for"
    told = [next(i for i in found["attention"] if i["kind"] == "outside") for found in (admin, alice)]
    assert [item["severity"] for item in told] == ["warning"] * 2, "a job lacks it"
    assert told[0]["text"] == f"{said}: Job team-b/big (3 pods), Job team-a/mine (1 pod) and 1 other"
    assert told[1]["text"] == f"{said}: Job team-a/mine (1 pod) and 2 others"


@pytest.mark.parametrize(
    ("strangers", "guaranteed", "why", "severity"),
    [
        ([outside("big", 8)], 64, None, "info"),  # 56 are left for them
        ([outside("big", 8)], 56, None, None),
        ([outside("big", 8)], 65, None, "info"),  # all 64 that there are
        ([outside("big", 40)], 8, waits(), "warning"),
        ([outside("big", 40)], 8, waits(Token.ON_HOLD), None),
        ([outside("big", 16)], 8, waits(), None),  # more is left than they hold
        ([SYSTEM], 64, waits(), None),  # every cluster has these
        ([Outside(namespace="n", kind="Job", name="web", amounts={"cpu": 1000})], 64, waits(), None),
    ],
)
async def test_pods_outside_are_a_matter_only_where_somebody_lacks_what_they_hold(
    api: httpx2.AsyncClient,
    author: Author,
    strangers: list[Outside],
    guaranteed: int,
    why: Explanation | None,
    severity: str | None,
) -> None:
    tree = copy.deepcopy(TREE)
    tree["queues"]["root.research"]["quota"] = [{"resource": GPU, "guaranteed": guaranteed}]
    for team in (A, B):
        tree["queues"][team]["quota"] = []
    await author.tree(tree)
    if why is not None:
        await author.submit(workload("a1", queue=A, gpus=8, pods=8))
    await author.cycle(outside=strangers, explain={} if why is None else {"a1": why})
    found = (await api.get("/api/v1/overview")).json()["attention"]
    assert [i["severity"] for i in found if i["kind"] == "outside"] == ([severity] if severity else [])


async def test_jobs_that_hang_in_unmanaged_namespaces_need_somebody(
    api: httpx2.AsyncClient, author: Author
) -> None:
    """Guards their queue, too: what is in no line is no demand, and is not called unstartable."""
    await author.tree()
    why = Explanation(
        primary=Reason(Token.SUSPENDED, {"namespace": "team-a", "unmanagedSince": NOW, "started": False})
    )
    row = Intake(workload=workload("a1", queue=A, gpus=8), not_asked=NotAsked.MISCONFIGURED, explanation=why)
    async with begin(author.engine) as connection:
        await workloads.intake(connection, author.epoch, [row], at=NOW)
    await author.cycle(unmanaged=2)
    found = (await api.get("/api/v1/overview")).json()["attention"]
    said = "2 suspended jobs with a queue label in unmanaged namespaces: queuer doctor names them"
    assert [i["text"] for i in found if i["kind"] == "unmanaged"] == [said]
    queue = next(q for q in (await api.get("/api/v1/queues")).json()["items"] if q["path"] == A)
    counts = ("pendingWorkloads", "heldWorkloads", "unstartableWorkloads")
    assert [queue[count] for count in counts] == [0, 1, 0]
    told = (await api.get("/api/v1/workloads/a1/explanation")).json()
    assert told["primary"]["params"]["unmanagedSince"].endswith("Z")
    assert told["verdict"] == "HELD"


async def test_the_root_of_the_tree_has_what_pods_outside_use(
    monkeypatch: pytest.MonkeyPatch, api: httpx2.AsyncClient, author: Author
) -> None:
    """`status` has them, too. What is reserved is not free."""
    await author.tree()
    await author.cycle(outside=[outside("big", 24)], reserved={GPU: 16})
    accounts = {
        queue["path"]: next(a["outside"] for a in queue["accounts"] if a["resource"] == GPU)
        for queue in (await api.get("/api/v1/queues")).json()["items"]
    }
    assert (accounts["root"], accounts[A]) == ("24", None)
    tree = await run(monkeypatch, api, "queue", "tree")
    assert "24 gpu more are used by pods that no queue pays for: queuer status" in tree.stderr
    status = await run(monkeypatch, api, "status")
    assert [line.split() for line in status.stdout.splitlines() if line.startswith(("RESOURCE", GPU))] == [
        ["RESOURCE", "USED", "OUTSIDE", "RESERVED", "FREE", "ALLOCATABLE"],
        [GPU, "0", "24", "16", "16", "64"],
    ]


async def test_large_answers_are_compressed(api: httpx2.AsyncClient, author: Author) -> None:
    await author.tree()
    packed = await api.get("/api/v1/queues", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    plain = await api.get("/api/v1/queues", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert packed.json()["items"] == plain.json()["items"]


async def test_the_tree_as_it_was_is_the_last_minute_before_a_moment(
    api: httpx2.AsyncClient, author: Author
) -> None:
    await author.tree()
    made = [workload(f"w{n}", queue=A, submitted=NOW) for n in range(3)]
    minute = int(time.time()) // 60 * 60 - 3600
    async with begin(author.engine) as connection:
        await rollup.record(connection, author.epoch, at=minute)
    await author.submit(*made)
    await author.cycle(admit=made)
    async with begin(author.engine) as connection:
        await rollup.record(connection, author.epoch, at=minute + 600)

    async def at(seconds: float) -> dict[str, Any]:
        asked = datetime.fromtimestamp(seconds, tz=UTC).isoformat()
        return dict((await api.get("/api/v1/queue-history", params={"at": asked})).json())

    then, later = await at(minute + 599), await at(minute + 1200)
    assert (then["at"], then["stepSeconds"]) == (
        datetime.fromtimestamp(minute, tz=UTC).strftime("%FT%TZ"),
        60,
    )
    assert {row["path"] for row in then["items"]} == {"root", "root.research", A, B}
    admitted = [
        next(row["admittedWorkloads"] for row in tree["items"] if row["path"] == A) for tree in (then, later)
    ]
    assert admitted == [0, 3]
    nothing = await at(minute - 60)
    assert (nothing["at"], nothing["items"]) == (None, [])


async def test_there_is_no_tree_of_the_future(api: httpx2.AsyncClient, author: Author) -> None:
    await author.tree()
    problem_of(
        await api.get("/api/v1/queue-history?at=2999-01-01T00:00:00Z"), status=422, code="invalid_input"
    )

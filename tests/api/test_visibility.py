"""A caller sees the jobs of namespaces that it may read, and of others not even that they exist."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.cli.output import clock
from queuer.domain.queue import Order
from queuer.domain.reasons import hide
from queuer.solver.decide import decide
from queuer.solver.records import WITHOUT_SOLVER
from queuer.solver.stored import StoredCycle, encode
from queuer.store import retention, workloads
from queuer.store.engine import begin
from tests.api.cli import run
from tests.api.identity import Api
from tests.api.problems import problem_of
from tests.api.rows import NOW, TREE, Author
from tests.api.test_why import decided
from tests.solver.make import GPU as DEVICE
from tests.solver.make import gang, node, pod_set, running, snapshot
from tests.store.support import Eviction, workload


@pytest_asyncio.fixture
async def shared(shared: Api, author: Author) -> Api:
    """An API with users, and one job in each of two namespaces."""
    await author.tree()
    await author.submit(
        workload("a1", queue="root.research.team-a", namespace="team-a", name="mine"),
        workload("b1", queue="root.research.team-b", namespace="team-b", name="secret-b"),
    )
    return shared


@pytest.mark.parametrize(
    ("user", "seen"),
    [
        ("alice", {"a1"}), ("bob", {"b1"}), ("root", {"a1", "b1"}), ("eve", set[str]()),
        ("lead", set[str]()),  # it administers the queue of `a1`
    ],
)  # fmt: skip
async def test_lists_hold_the_jobs_of_readable_namespaces(shared: Api, user: str, seen: set[str]) -> None:
    found = await shared.get("/api/v1/workloads", headers={"user": user})
    assert {item["uid"] for item in found.json()["items"]} == seen


@pytest.mark.parametrize("query", ["namespace=team-b", "queue=root.research.team-b", "name=secret-b"])
async def test_no_filter_reaches_over_the_border(shared: Api, query: str) -> None:
    found = await shared.get(f"/api/v1/workloads?{query}", headers={"user": "alice"})
    assert found.json()["items"] == []
    assert "secret-b" not in found.text


@pytest.mark.parametrize("tail", ["", "/explanation", "/timeline"])
async def test_a_foreign_uid_reads_like_one_that_does_not_exist(shared: Api, tail: str) -> None:
    foreign, absent = [
        problem_of(await shared.get(f"/api/v1/workloads/{uid}{tail}", headers={"user": "alice"}), "not_found")
        for uid in ("b1", "zz")
    ]
    assert foreign["detail"].replace("b1", "zz") == absent["detail"]


async def test_a_foreign_name_is_forbidden_whether_it_exists_or_not(shared: Api) -> None:
    said = [
        problem_of(
            await shared.get(f"/api/v1/workloads/by-ref/team-b/job/{name}", headers={"user": "alice"}),
            "forbidden",
        )["detail"]
        for name in ("secret-b", "nothing")
    ]
    assert said[0] == said[1]
    assert "get workloads.queuer.dev in namespace team-b" in said[0]


async def test_whoever_is_not_known_gets_no_answer(shared: Api) -> None:
    problem_of(await shared.get("/api/v1/queues"), "unauthenticated")


@pytest.mark.parametrize(("user", "named"), [("alice", False), ("root", True)])
async def test_who_is_ahead_is_named_to_whoever_may_read_it(
    shared: Api, author: Author, user: str, named: bool
) -> None:
    """Behind another team's job in a strict queue. The stored reason names it to nobody."""
    mine = workload("a1", queue="root", namespace="team-a", name="mine", pods=1, gpus=8)
    head = workload(
        "b1", queue="root", namespace="team-b", name="secret-b", pods=5, gpus=8, submitted=NOW - 9
    )
    cycle = decided(head, mine, order=Order.STRICT)
    assert cycle.plan is not None
    raw = cycle.plan.explanations["a1"]
    assert "team-b/secret-b" in raw.primary.text
    await author.cycle(explain={"a1": hide(raw, "team-a".__eq__)})
    await author.keep(encode(cycle))
    for tail in ("a1", "a1/explanation", "by-ref/team-a/job/mine"):
        found = await shared.get(f"/api/v1/workloads/{tail}", headers={"user": user})
        assert ("secret-b" in found.text) is named
        assert ("b1" in found.text) is named
    assert "secret-b" not in (await shared.get("/api/v1/workloads", headers={"user": "alice"})).text


async def test_for_whom_one_was_evicted_is_a_queue_and_an_amount(shared: Api, author: Author) -> None:
    made = workload("a1", queue="root.research.team-a", namespace="team-a", name="mine")
    await author.cycle(admit=[made])
    await author.evict(Eviction(uid="a1", cause="reclaim", patch={}, beneficiary="b1", note="evicted"))
    found = await shared.get("/api/v1/workloads/a1", headers={"user": "alice"})
    evicted = found.json()["explanation"]["detail"]["evicted"]
    whose = {key: value for key, value in evicted["for"].items() if value is not None}
    assert ({*whose}, whose["queue"]) == ({"queue", "amounts"}, "root.research.team-b")
    assert evicted["reclaimAt"] == "root.research"
    for word in ("secret-b", "team-b/", '"b1"'):
        assert word not in found.text


@pytest.mark.parametrize(
    ("user", "named"), [("eve", False), ("alice", False), ("lead", True), ("root", True)]
)
async def test_who_may_use_a_queue_is_told_to_who_administers_it(
    shared: Api, author: Author, user: str, named: bool
) -> None:
    """Amounts and words of `access` are for everybody."""
    team = "root.research.team-a"
    access = {"users": ["carol-k"], "groups": ["secret-project"], "maxPending": 7}
    rules = [{"user": "carol-k", "queue": team}, {"namespace": "team-a", "queue": team}]
    queues = {**TREE["queues"], team: {**TREE["queues"][team], "access": access, "placement": []}}
    queues["root.research"] = {**TREE["queues"]["root.research"], "placement": rules}
    await author.tree({**TREE, "queues": queues})
    for path in (f"queues/{team}", "queues", "queue-tree"):
        answer = await shared.get(f"/api/v1/{path}", headers={"user": user})
        assert ("secret-project" in answer.text) is named, path
        assert '"maxPending":7' in answer.text
        if user != "lead":
            assert ("carol-k" in answer.text) is named, path


async def test_the_history_of_a_subtree_tells_nothing_of_its_neighbours(shared: Api, author: Author) -> None:
    """M7: one changeset touched two teams and the queue above; its reason speaks of all."""
    await author.tree()
    a, b, above = "root.research.team-a", "root.research.team-b", "root.research"
    access = {"users": ["carol-k"]}
    wish = {path: {**TREE["queues"][path], "access": access} for path in (above, a)}
    wish[b] = {**TREE["queues"][b], "weight": 7, "access": {"groups": ["secret-project"]}}
    await author.tree({**TREE, "queues": {**TREE["queues"], **wish}}, reason="for secret-project")
    page = await shared.get("/api/v1/changesets", params={"root": a}, headers={"user": "lead"})
    newest = page.json()["items"][0]
    assert ([change["name"] for change in newest["changes"]], newest["reason"]) == ([a], "")
    whole = await shared.get("/api/v1/changesets", params={"root": a}, headers={"user": "root"})
    assert len(whole.json()["items"][0]["changes"]) == 3
    document = {**TREE, "root": a, "queues": {a: wish[a]}}
    document.pop("topology")
    stale = await shared.put("/api/v1/queue-tree", json=document, headers={"user": "lead", "If-Match": '"1"'})
    assert stale.status_code == 412, stale.text
    audit = await shared.get("/api/v1/audit", headers={"user": "lead"})
    assert f"{above}: the people that it names" in audit.text
    for answer in (page, stale, audit):
        assert "secret-project" not in answer.text
        assert "team-b" not in answer.text


async def test_a_namespace_made_anew_has_no_past(shared: Api, author: Author, engine: AsyncEngine) -> None:
    """M12: its next owner reads nothing of the former one's jobs; what is still there is left as it is."""
    team = "root.research.team-a"
    await author.submit(workload("live", queue=team, name="live"))
    await author.submit(workload("new", queue=team, name="mine", submitted=NOW + 200))
    async with begin(engine) as connection:
        await workloads.forget(connection, author.epoch, ["a1", "b1"], NOW + 90)
        made = {"team-a": NOW + 100, "team-b": NOW - 100}
        assert await retention.set_apart(connection, author.epoch, made) == 1
        assert await retention.set_apart(connection, author.epoch, made) == 0
    for user, seen in (("alice", {"live", "new"}), ("bob", {"b1"}), ("root", {"a1", "b1", "live", "new"})):
        found = await shared.get("/api/v1/workloads", params={"deleted": "true"}, headers={"user": user})
        assert {item["uid"] for item in found.json()["items"]} == seen
    for path in ("workloads/a1", "workloads/a1/timeline"):
        problem_of(await shared.get(f"/api/v1/{path}", headers={"user": "alice"}), "not_found")
    told = await shared.get("/api/v1/events", headers={"user": "alice"})
    assert "a1" not in {event["uid"] for event in told.json()["items"]}
    whole = (await shared.get("/api/v1/workloads/a1", headers={"user": "root"})).json()
    assert whole["namespace"].startswith("team-a@20")


async def test_the_map_names_whom_room_is_held_for_to_their_readers_alone(
    shared: Api, author: Author
) -> None:
    waits = gang("b1", pod_set(2, 8), queue="root", required="rack")
    waits = replace(waits, namespace="team-b", name="secret-b")
    racks = [node(f"n{n}", gpu=8, labels={"block": "b", "rack": f"r{n // 2}"}) for n in range(4)]
    work = [
        running(gang(f"long{n}", pod_set(1, 8), queue="root"), {f"n{n}": 1}, expected_end=NOW + 600.0)
        for n in (0, 2)
    ]
    there = snapshot(racks, [], admitted=work, pending=[waits])
    plan = decide(there, now=NOW, seed=0, budget=WITHOUT_SOLVER)
    cycle = StoredCycle(snapshot=there, now=NOW, seed=0, budget=WITHOUT_SOLVER, plan=plan)
    await author.cycle()
    await author.keep(encode(cycle))

    async def told(user: str) -> dict[str, Any]:
        found = (await shared.get("/api/v1/topology?level=rack", headers={"user": user})).json()
        (held,) = [held for domain in found["domains"] for held in domain["heldFor"]]
        return {**held, "sums": (found["used"], found["reserved"], found["free"])}

    known, foreign = await told("bob"), await told("alice")
    assert (known["namespace"], known["name"]) == ("team-b", "secret-b")
    assert (foreign["uid"], foreign["namespace"], foreign["name"]) == (None, None, None)
    shared.headers["user"] = "alice"
    printed = await run(shared, "topo")
    assert f"reserved for a job of root from {clock(known['start'])}: b/r0 (16)" in printed.out
    for each in (known, foreign):
        assert (each["queue"], each["amounts"], each["sums"]) == ("root", {DEVICE: "16"}, ("16", "8", "8"))
        assert datetime.fromisoformat(each["start"]).timestamp() == NOW + 600.0

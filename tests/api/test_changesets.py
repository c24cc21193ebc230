"""A change is planned, looked at, applied as it was shown or not at all, and can be taken back."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.queue import ManagedBy
from queuer.store.engine import begin
from tests.api.identity import Api
from tests.api.problems import problem_of
from tests.api.rows import GPU, TREE, A, Author, B, changed
from tests.store.support import workload

PATH = "/api/v1/changesets"
TREE_PATH = "/api/v1/queue-tree"
WHY = {"reason": "team-b needs them for a release"}


def gpus(namespace: str, **amounts: int) -> dict[str, Any]:
    """A leaf's body."""
    return {"namespaces": [namespace], "quota": [{"resource": GPU, **amounts}]}


async def plan(api: Api, document: object, *, status: int = 201, **params: str) -> dict[str, Any]:
    """The answer to a plan."""
    found = await api.post(PATH, json=document, params=params)
    assert found.status_code == status, found.text
    body: dict[str, Any] = found.json()
    return body


async def apply(
    api: Api, id: str, body: object = None, *, headers: dict[str, str] | None = None
) -> httpx2.Response:
    key = {"Idempotency-Key": uuid4().hex}
    return await api.post(f"{PATH}/{id}:apply", json=body, headers={**key, **(headers or {})})


async def export(api: Api) -> Any:
    return (await api.get(TREE_PATH)).json()


async def test_a_plan_is_shown_applied_and_found_again(api: Api, author: Author) -> None:
    await author.tree()
    made = await plan(api, changed(team_a=gpus("team-a", guaranteed=32, limit=64)))
    assert (made["state"], made["baseRevision"], made["revision"]) == ("planned", 1, None)
    assert [change["text"] for change in made["changes"]] == [f"{A}: quota {GPU} limit none -> 64"]
    assert (await api.get(TREE_PATH)).headers["etag"] == '"1"'
    assert (await api.get(f"{PATH}/{made['id']}")).json() == made
    done = await apply(api, made["id"])
    assert (done.status_code, done.json()["state"], done.json()["revision"]) == (200, "applied", 2)
    assert (await api.get(f"{PATH}/{made['id']}")).json() == done.json()
    assert (await export(api))["queues"][A]["quota"] == [{"resource": GPU, "guaranteed": "32", "limit": "64"}]
    listed = (await api.get(PATH)).json()
    assert [item["revision"] for item in listed["items"]] == [2, 1]
    one = (await api.get(f"{PATH}/2")).json()
    expected = {**listed["items"][0], "impactMissing": done.json()["impactMissing"]}
    assert one == expected, "with what was told of its plan"
    refused = problem_of(await apply(api, made["id"]), "conflict")
    assert "applied as revision 2" in refused["detail"]


async def test_what_changes_nothing_is_not_kept(api: Api, author: Author) -> None:
    await author.tree()
    assert (await plan(api, TREE, status=200))["id"] is None
    dry = await plan(api, changed(team_a=gpus("team-a", limit=9)), status=200, dryRun="true")
    assert (dry["id"], len(dry["changes"])) == (None, 1)


async def test_other_edits_do_not_conflict(api: Api, author: Author) -> None:
    """Two admins plan on one revision; each touches its own queue."""
    await author.tree()
    first = await plan(api, changed(team_a=gpus("team-a", guaranteed=32, limit=64)))
    second = await plan(api, changed(team_b=gpus("team-b", guaranteed=32, limit=48)))
    assert (await apply(api, first["id"])).status_code == 200
    assert (await apply(api, second["id"])).json()["revision"] == 3
    assert {A, B} <= (await export(api))["queues"].keys()


async def test_an_edit_of_the_same_queue_is_told_field_by_field(api: Api, author: Author) -> None:
    await author.tree()
    first = await plan(api, changed(team_a={**gpus("team-a", guaranteed=32, limit=64), "weight": 2}))
    second = await plan(api, changed(team_a=gpus("team-a", guaranteed=32, limit=48)))
    assert (await apply(api, first["id"])).status_code == 200
    before = await export(api)
    stale = problem_of(await apply(api, second["id"]), "stale_revision")
    moved = {error["field"]: error["message"] for error in stale["errors"]}
    assert moved.keys() == {f"queues.{A}.quota", f"queues.{A}.weight"}
    assert moved[f"queues.{A}.weight"] == "weight 1 -> 2 in revision 2, by unauthenticated"
    assert await export(api) == before


async def test_a_put_on_an_old_revision_is_told_what_moved(api: Api, author: Author) -> None:
    await author.tree()
    await author.tree(changed(team_a={**gpus("team-a", guaranteed=32), "weight": 2}))
    stale = problem_of(await api.put(TREE_PATH, json=TREE, headers={"If-Match": '"1"'}), "stale_revision")
    assert [error["field"] for error in stale["errors"]] == [f"queues.{A}.weight"]


async def test_what_others_made_impossible_meanwhile_is_refused(api: Api, author: Author) -> None:
    """Each plan alone keeps the children within their parent; both together would not."""
    await author.tree({**TREE, "queues": {**TREE["queues"], B: {"namespaces": ["team-b"]}}})
    first = await plan(api, {**TREE, "queues": {B: gpus("team-b", guaranteed=32)}})
    second = await plan(api, {**TREE, "queues": {A: gpus("team-a", guaranteed=64)}})
    assert (await apply(api, first["id"])).status_code == 200
    refused = problem_of(await apply(api, second["id"]), "invalid_input")
    assert "96" in refused["errors"][0]["message"]


async def test_a_discarded_or_old_plan_is_not_applied(api: Api, author: Author, engine: AsyncEngine) -> None:
    await author.tree()
    gone = await plan(api, changed(team_a=gpus("team-a", limit=64)))
    assert (await api.post(f"{PATH}/{gone['id']}:discard")).json()["state"] == "discarded"
    assert "discarded" in problem_of(await apply(api, gone["id"], WHY), "conflict")["detail"]
    old = await plan(api, changed(team_a=gpus("team-a", limit=64)))
    async with begin(engine) as connection:
        await connection.execute(text("UPDATE draft SET expires = now() - interval '1 s'"))
    assert (await api.get(f"{PATH}/{old['id']}")).json()["state"] == "expired"
    assert "15 minutes" in problem_of(await apply(api, old["id"], WHY), "conflict")["detail"]
    problem_of(await api.get(f"{PATH}/nonsense"), "not_found")
    problem_of(await api.get(f"{PATH}/99"), "not_found")


async def test_a_revert_restores_the_same_export(api: Api, author: Author, engine: AsyncEngine) -> None:
    """By revision and by audit entry; what is taken back can be taken back again."""
    await author.tree()
    before = await export(api)
    made = await plan(api, changed(team_a={**gpus("team-a", guaranteed=16), "weight": 3}))
    assert (await apply(api, made["id"], WHY)).status_code == 200
    edited = await export(api)
    async with begin(engine) as connection:
        audit = await connection.execute(
            text("SELECT id, actor, source, reason, revision FROM audit ORDER BY id")
        )
        rows = audit.all()
    assert [tuple(row)[1:] for row in rows][-1] == ("unauthenticated", "api", WHY["reason"], 2)
    planned = await api.post(f"/api/v1/audit/{rows[-1].id}:revert")
    assert (planned.status_code, planned.json()["reverts"]) == (201, 2)
    assert (await apply(api, planned.json()["id"], WHY)).status_code == 200
    assert await export(api) == before
    again = await plan(api, {"revert": 3})
    assert (await apply(api, again["id"], WHY)).status_code == 200
    assert await export(api) == edited
    problem_of(await api.post("/api/v1/audit/999:revert"), "not_found")
    for wrong in ({"revert": True}, {"revert": 0}, {"revert": 1, "queues": {}}):
        problem_of(await api.post(PATH, json=wrong), "invalid_input")


async def test_what_objects_of_the_cluster_wrote_is_not_taken_back_over_rest(
    api: Api, author: Author
) -> None:
    await author.tree(writer=ManagedBy.CRD)
    problem_of(await api.post(PATH, json={"revert": 1}), "conflict")
    found = problem_of(await api.post(PATH, json=changed(team_a={"weight": 2})), "conflict")
    assert "managed by crd" in found["errors"][0]["message"]


async def test_the_history_is_read_page_by_page(api: Api, author: Author) -> None:
    await author.tree()
    for weight in (2, 3, 4):
        await author.tree(changed(team_a={**gpus("team-a", guaranteed=32), "weight": weight}))
    await author.tree({**TREE, "queues": {B: {**gpus("team-b", guaranteed=32), "weight": 2}}})
    seen: list[int] = []
    page = await api.get(PATH, params={"root": A, "limit": 3})
    seen += [item["revision"] for item in page.json()["items"]]
    page = await api.get(PATH, params={"root": A, "limit": 3, "cursor": page.json()["next"]})
    seen += [item["revision"] for item in page.json()["items"]]
    assert (seen, page.json()["next"]) == ([4, 3, 2, 1], None)


# Taken away


async def running(author: Author, *sizes: tuple[str, str, int]) -> None:
    """Jobs that run: uid, queue, GPUs; each younger than the one before."""
    made = [
        workload(uid, queue=queue, gpus=size, namespace=queue.rsplit(".", 1)[-1])
        for uid, queue, size in sizes
    ]
    await author.submit(*made)
    for each in made:
        await author.cycle(admit=[each])


async def test_a_cut_below_use_warns_by_how_much_and_needs_a_reason(api: Api, author: Author) -> None:
    await author.tree()
    await running(author, ("a1", A, 24), ("a2", A, 16), ("a3", A, 8))
    made = await plan(api, changed(team_a=gpus("team-a", guaranteed=16, limit=28)))
    assert made["overLimit"] == [
        {"queue": A, "flavor": None, "resource": GPU, "limit": "28", "used": "48", "over": "20"}
    ]
    fields = [row["field"] for row in made["reductions"]]
    assert fields == [f"queues.{A}.quota[0].limit", f"queues.{A}.quota"]
    assert {row["field"] for row in made["warnings"]} >= {f"queues.{A}.quota[0].limit"}
    assert made["reclaimable"] == [{"queue": A, "flavor": None, "resource": GPU, "amount": "16"}]
    assert [job["uid"] for job in made["victims"]["jobs"]] == ["a3", "a2"]
    assert made["victims"]["amounts"][GPU] == "24"
    for reason in ("", "too short"):
        refused = problem_of(await apply(api, made["id"], {"reason": reason}), "invalid_input")
        assert refused["errors"][0]["field"] == "reason"
        assert "20 below the 48" in refused["errors"][0]["message"]
    assert (await apply(api, made["id"], WHY)).status_code == 200


async def test_nobody_is_hit_who_is_not_needed(api: Api, author: Author) -> None:
    """The newest go first; one that an older, larger one makes needless stays."""
    await author.tree()
    await running(author, ("a1", A, 8), ("a2", A, 32), ("a3", A, 8))
    made = await plan(api, changed(team_a=gpus("team-a", limit=16)))
    assert [job["uid"] for job in made["victims"]["jobs"]] == ["a2"]


@pytest.mark.parametrize(
    ("queues", "field"),
    [
        ({A: None}, f"queues.{A}"),
        ({A: {**gpus("other", guaranteed=32)}}, f"queues.{A}.namespaces"),
        (
            {A: {**gpus("team-a", guaranteed=32), "access": {"maxPriority": "low"}}},
            f"queues.{A}.access.maxPriority",
        ),
        (
            {A: {**gpus("team-a", guaranteed=32), "access": {"maxPending": 5}}},
            f"queues.{A}.access.maxPending",
        ),
        ({A: {**gpus("team-a", guaranteed=32), "access": {"users": ["bob"]}}}, f"queues.{A}.access.users"),
        (
            {A: {**gpus("team-a", guaranteed=32), "access": {"maxRuntime": "2h"}}},
            f"queues.{A}.access.maxRuntime",
        ),
        (
            {A: {**gpus("team-a", guaranteed=32), "access": {"perUser": {"limits": {GPU: 4}}}}},
            f"queues.{A}.access.perUser.limits.{GPU}",
        ),
    ],
)
async def test_what_takes_something_away_needs_a_reason(
    api: Api, author: Author, queues: dict[str, Any], field: str
) -> None:
    await author.tree()
    document = {**TREE, "prune": True, "queues": {**TREE["queues"], **queues}}
    document["queues"] = {path: body for path, body in document["queues"].items() if body is not None}
    made = await plan(api, document)
    assert [row["field"] for row in made["reductions"]] == [field]
    problem_of(await apply(api, made["id"]), "invalid_input")
    short = await api.put(TREE_PATH, json=document, headers={"If-Match": "*"})
    assert problem_of(short, "invalid_input")["errors"][0]["field"] == "reason"
    long = await api.put(TREE_PATH, json=document, headers={"If-Match": "*"}, params=WHY)
    assert long.json()["applied"] is True


async def test_a_cut_may_be_refused_while_somebody_is_over(api: Api, author: Author) -> None:
    await author.tree()
    await running(author, ("a1", A, 24))
    cut = changed(team_a=gpus("team-a", limit=16))
    refused = problem_of(await api.post(PATH, json=cut, params={"effect": "refuse"}), "invalid_input")
    [error] = refused["errors"]
    assert error["field"] == f"queues.{A}.quota[0].limit"
    assert error["message"] == "16 is 8 below the 24 gpu in use: the effect refuse refuses that"
    assert error["hint"] == "the effect drain lets jobs end, evict evicts them"
    await plan(api, changed(team_a=gpus("team-a", limit=24)), effect="refuse")


async def test_a_cut_may_evict_those_whom_the_plan_showed(
    api: Api, author: Author, engine: AsyncEngine
) -> None:
    await author.tree()
    await running(author, ("a1", A, 8), ("a2", A, 16))
    cut = changed(team_a=gpus("team-a", limit=16))
    made = await plan(api, cut, effect="evict", evictAfter="10m")
    shown = [job["uid"] for job in made["victims"]["jobs"]]
    assert (made["effect"], made["evictAfter"], shown) == ("evict", "10m", ["a2"])
    done = await apply(api, made["id"], WHY)
    assert done.status_code == 200, done.text
    async with begin(engine) as connection:
        [row] = (await connection.execute(text("SELECT * FROM command"))).all()
    assert (row.verb, row.uid, row.administers) == ("evict", "a2", A)
    assert (row.arguments, row.reason) == ({"revision": 2}, f"revision 2: {WHY['reason']}")
    assert (row.due - row.at).total_seconds() == 600
    told, spared = [(await api.get(f"/api/v1/workloads/{uid}")).json()["eviction"] for uid in ("a2", "a1")]
    assert (datetime.fromisoformat(told["at"]), told["reason"], spared) == (row.due, row.reason, None)
    attention = (await api.get("/api/v1/overview")).json()["attention"]
    assert "1 job is to be evicted by order, the first in 10 min" in {item["text"] for item in attention}


async def test_a_cut_that_would_evict_others_than_it_showed_is_planned_again(
    api: Api, author: Author, engine: AsyncEngine
) -> None:
    await author.tree()
    await running(author, ("a1", A, 16))
    made = await plan(api, changed(team_a=gpus("team-a", limit=16)), effect="evict")
    await running(author, ("a2", A, 8))
    said = problem_of(await apply(api, made["id"], WHY), "conflict")
    assert "1 running jobs would be evicted that the plan did not show" in said["detail"]
    async with begin(engine) as connection:
        assert not (await connection.execute(text("SELECT FROM command"))).all()


@pytest.mark.parametrize("params", [{"evictAfter": "10m"}, {"effect": "evict", "evictAfter": "31d"}])
async def test_a_delay_is_of_an_eviction_and_bounded(api: Api, params: dict[str, str]) -> None:
    said = problem_of(await api.post(PATH, json=TREE, params=params), "invalid_input")
    assert said["errors"][0]["field"] == "evictAfter"


async def test_a_leaf_with_work_does_not_become_an_inner_queue(api: Api, author: Author) -> None:
    await author.tree()
    await running(author, ("a1", A, 8))
    await author.submit(workload("a2", queue=A))
    found = problem_of(await api.post(PATH, json={**TREE, "queues": {f"{A}.x": None}}), "invalid_input")
    assert found["errors"][0]["field"] == f"queues.{A}.x"
    assert "1 waiting and 1 admitted" in found["errors"][0]["message"]
    assert "draining" in found["errors"][0]["hint"]


async def test_a_wrong_field_has_its_json_pointer(api: Api, author: Author) -> None:
    """One refuses the whole document, which names all that is wrong."""
    await author.tree()
    document = changed(
        team_a={"quota": [{"resource": GPU, "limit": "lots"}], "weigth": 2}, team_b={"state": "asleep"}
    )
    more = changed(team_b=gpus("team-b", guaranteed=48))
    for method, path in (("POST", PATH), ("PUT", TREE_PATH), ("PUT", f"{TREE_PATH}?dryRun=true")):
        sent = await api.request(method, path, json=document, headers={"If-Match": "*"})
        found = problem_of(sent, "invalid_input")["errors"]
        assert [(error["field"], error["pointer"]) for error in found] == [
            (f"queues.{A}.weigth", f"/queues/{A}/weigth"),
            (f"queues.{A}.quota[0].limit", f"/queues/{A}/quota/0/limit"),
            (f"queues.{B}.state", f"/queues/{B}/state"),
        ]
        assert found[0]["hint"] == "did you mean weight?"
        sent = await api.request(method, path, json=more, headers={"If-Match": "*"})
        [error] = problem_of(sent, "invalid_input")["errors"]
        assert error["pointer"] == "/queues/root.research/quota/0/guaranteed"
        assert {"80", "64"} <= set(error["message"].split())
    assert (await api.get(TREE_PATH)).headers["etag"] == '"1"'


async def test_a_subtree_document_does_not_reach_outside(api: Api, author: Author) -> None:
    await author.tree()
    document = {
        **TREE, "root": A, "prune": True,
        "queues": {A: gpus("team-a", guaranteed=32), B: {"weight": 9}},
        "flavors": [{"name": "h100", "nodeLabels": {"gpu": "h100"}}],
    }  # fmt: skip
    found = problem_of(await api.post(PATH, json=document), "invalid_input")
    assert [error["field"] for error in found["errors"]] == ["flavors", "topology", f"queues.{B}"]
    inside = {**TREE, "root": A, "prune": True, "queues": {A: gpus("team-a", guaranteed=16)}}
    del inside["topology"]
    made = await plan(api, inside)
    assert ([change["name"] for change in made["changes"]], made["root"]) == ([A], A)

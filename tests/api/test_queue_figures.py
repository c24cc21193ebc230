"""A queue's figures beside its amounts: headroom, its line, its past, fair share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuer.domain.workload import Workload
from queuer.solver.stored import encode
from queuer.store import rollup
from queuer.store.config import load_config
from queuer.store.engine import begin
from tests.api.identity import Api
from tests.api.problems import problem_of
from tests.api.rows import GPU, TREE, A, Author, B, decided_on, two_racks
from tests.store.support import NOW, workload


async def decided(author: Author, *waiting: Workload, runs: Sequence[Workload] = ()) -> None:
    """A cycle over two racks of two nodes on the tree as it is, recorded and kept; `runs`: one a node."""
    async with begin(author.engine) as connection:
        tree = (await load_config(connection)).tree
    cycle = decided_on(two_racks(tree, *waiting, runs=dict(enumerate(runs))))
    assert cycle.plan is not None
    await author.submit(*waiting, *runs)
    await author.cycle(admit=runs, explain=cycle.plan.explanations)
    await author.keep(encode(cycle))


async def test_headroom_says_what_may_start_and_what_is_in_the_way(api: Api, author: Author) -> None:
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


async def test_headroom_says_what_may_be_taken_back_from_borrowers(api: Api, author: Author) -> None:
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


async def test_a_limit_and_a_closed_queue_are_named(api: Api, author: Author) -> None:
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


async def test_what_one_user_may_have_is_a_cap_of_theirs(shared: Api, author: Author) -> None:
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
    problem_of(denied, "forbidden")


@pytest.mark.parametrize(
    "shape", ["", "gpu", "gpu:x", "tpu:1", "gpu:0", "gpu:1,gpu:2", "gpu:1.5", ",".join(["cpu:1"] * 20)]
)
async def test_a_wrong_shape_is_refused_by_name(api: Api, author: Author, shape: str) -> None:
    await author.tree()
    await decided(author)
    wrong = await api.get(f"/api/v1/queues/{A}/headroom", params={"shape": shape})
    assert problem_of(wrong, "invalid_input")["errors"][0]["field"] == "shape"


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


async def pages(api: Api, path: str, *, user: str = "", limit: int = 3) -> list[Any]:
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


async def test_the_line_is_in_the_order_of_the_cycle(shared: Api, author: Author) -> None:
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
async def test_others_are_runs_of_counts_and_amounts(shared: Api, author: Author, limit: int) -> None:
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
    problem_of(wrong, "invalid_input")


async def test_a_page_goes_on_where_the_last_one_ended_though_some_have_left(
    shared: Api, author: Author
) -> None:
    await author.tree()
    await decided(author, *jobs(), runs=[BUSY])
    headers = {"user": "root"}
    first = (await shared.get(f"/api/v1/queues/{A}/pending?limit=2", headers=headers)).json()
    await author.delete("a0")
    rest = await shared.get(f"/api/v1/queues/{A}/pending?limit=9&cursor={first['next']}", headers=headers)
    assert [i["workload"]["uid"] for i in rest.json()["items"]] == ["a4", "a6", "a8"]


async def test_fair_share_tells_factors_and_who_has_what_is_lacking(api: Api, author: Author) -> None:
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
    problem_of(await api.get("/api/v1/fair-share?root=root.nope"), "not_found")


async def test_the_past_of_a_queue_and_how_long_who_started_had_waited(api: Api, author: Author) -> None:
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
    assert "kept for two days" in problem_of(refused, "invalid_input")["detail"]
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


async def test_history_begins_where_there_is_something_to_tell(api: Api, author: Author) -> None:
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
    [*(f"queues/{A}/history?{window}" for window in (
        "step=7s", "step=x", "until=0.5", "since=2026-01-01", "since=2026-13-01T00:00:00Z",
        "step=1m&since=2020-01-01T00:00:00Z", "since=2999-01-01T00:00:00Z",
        "until=0001-01-01T00:00:00Z", "step=1h&since=0001-01-01T00:00:00Z")),
     "queue-history?at=2999-01-01T00:00:00Z"],
)  # fmt: skip
async def test_a_window_that_nothing_is_kept_of_is_refused(api: Api, author: Author, query: str) -> None:
    await author.tree()
    problem_of(await api.get(f"/api/v1/{query}"), "invalid_input")


async def test_large_answers_are_compressed(api: Api, author: Author) -> None:
    await author.tree()
    packed = await api.get("/api/v1/queues", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    plain = await api.get("/api/v1/queues", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert packed.json()["items"] == plain.json()["items"]


async def test_the_tree_as_it_was_is_the_last_minute_before_a_moment(api: Api, author: Author) -> None:
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

"""Rules of every list: pages, filters, groups, and where a stream goes on."""

from __future__ import annotations

from typing import Any

import pytest

from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State
from queuer.store import listing
from tests.api.identity import Api
from tests.api.problems import problem_of
from tests.api.rows import GPU, NOW, TREE, A, Author, B, waits
from tests.store.support import workload

LISTS = {"workloads": "uid", "queues": "path", "events": "id", "audit": "id", "cycles": "id"}


async def _filled(author: Author) -> None:
    """Six waiting jobs of two queues, and one that has ended."""
    await author.tree()
    ended = workload("old", queue=A, name="old", user="carol", submitted=NOW - 50)
    made = [
        workload(
            f"u{n}", queue=(A, B)[n % 2], name=f"sweep-{n}", user=("alice", "bob")[n % 2], priority=n % 3,
            gpus=2, submitted=NOW + n,
        )
        for n in range(6)
    ]  # fmt: skip
    await author.submit(ended, *made)
    await author.cycle(admit=[ended], explain={made[0].uid: waits()})
    await author.step("old", State.RUNNING)
    await author.step("old", State.SUCCEEDED)
    await author.cycle()


async def get(api: Api, path: str, **params: Any) -> dict[str, Any]:
    answer = await api.get(f"/api/v1/{path}", params=params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.parametrize(("path", "key"), LISTS.items())
async def test_every_list_pages_to_its_end(api: Api, author: Author, path: str, key: str) -> None:
    await _filled(author)
    await author.tree(
        {
            "apiVersion": "queuer.dev/v1",
            "kind": "QueueTree",
            "queues": {A: {"weight": 2, "namespaces": ["team-a"]}},
        }
    )
    whole = [row[key] for row in (await get(api, path))["items"]]
    page = await get(api, path, limit=1)
    seen = [row[key] for row in page["items"]]
    while page["next"] is not None:
        page = await get(api, path, limit=1, cursor=page["next"])
        seen += [row[key] for row in page["items"]]
    assert seen == whole
    assert len(whole) > 1


async def test_words_are_taken_in_any_case(api: Api, author: Author) -> None:
    await _filled(author)
    one, other = [(await get(api, "workloads", state=state))["items"] for state in ("queued", "Queued")]
    assert one == other != []


@pytest.mark.parametrize("path", LISTS)
async def test_every_list_says_from_when_it_is(api: Api, author: Author, path: str) -> None:
    await _filled(author)
    body = await get(api, path)
    assert body["asOf"]
    assert body["cycle"]["id"] == 2
    assert body["seq"] == (await get(api, "events"))["items"][0]["id"]


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({}, ["u5", "u4", "u3", "u2", "u1", "u0", "old"]),
        ({"user": "bob"}, ["u5", "u3", "u1"]),
        ({"namespace": "team-b"}, []),
        ({"state": "Queued,Succeeded", "queue": A}, ["u4", "u2", "u0", "old"]),
        ({"queue": f"{A}.**"}, ["u4", "u2", "u0", "old"]),
        ({"queue": "root.research.**", "state": "Succeeded"}, ["old"]),
        ({"reason": "TopologyPlacementFailed"}, ["u0"]),
        ({"reason": "PendingEvaluation,TopologyPlacementFailed", "user": "alice"}, ["u4", "u2", "u0"]),
        ({"since": "2025-11-21T04:40:04Z"}, ["u5", "u4"]),
        ({"until": "2025-11-21T04:40:01Z"}, ["u0", "old"]),
        ({"sort": "submitted", "limit": "2"}, ["old", "u0"]),
        ({"sort": "-priority"}, ["u5", "u2", "u4", "u1", "u3", "u0"]),
        ({"sort": "name", "state": "Queued,Running"}, ["u0", "u1", "u2", "u3", "u4", "u5"]),
        ({"sort": "-queue", "user": "bob"}, ["u5", "u3", "u1"]),
        ({"name": "sweep-3"}, ["u3"]),
        ({"name": "*eep-3"}, ["u3"]),
        ({"name": "sweep_*"}, []),
        ({"name": "%*"}, []),
        ({"user": "*LI*"}, []),
        ({"user": "*li*", "state": "Queued"}, ["u4", "u2", "u0"]),
    ],
)
async def test_filters_and_orders_of_workloads(
    api: Api, author: Author, params: dict[str, str], found: list[str]
) -> None:
    await _filled(author)
    body = await get(api, "workloads", **params)
    assert [row["uid"] for row in body["items"]] == found


async def test_a_number_of_the_overview_has_a_list_of_as_many_rows(shared: Api, author: Author) -> None:
    """By token and verdict; a tenant is told how many of them are of others."""
    await author.tree()
    made = [
        workload(f"u{n}", queue=(A, B)[n % 2], namespace=("team-a", "team-b")[n % 2], gpus=2)
        for n in range(7)
    ]
    never = Explanation(primary=Reason(Token.TOPOLOGY_PLACEMENT_FAILED, {"unstartable": True}, "too large"))
    await author.submit(*made)
    await author.submit(workload("held", queue=A, namespace="team-a"), state=State.HELD)
    await author.misconfigured(workload("wrong", queue=A, namespace="team-a"), "a field")
    await author.cycle(explain={w.uid: never if n < 3 else waits() for n, w in enumerate(made[:6])})
    for user, all_seen in (("root", True), ("bob", False)):
        shared.headers["user"] = user
        overview = await get(shared, "overview")
        groups, never = overview["reasons"], overview["attention"][-1]
        assert {(g["token"], g["verdict"]): g["jobs"] for g in groups} == {
            ("TopologyPlacementFailed", "CHANGE"): 3, ("TopologyPlacementFailed", "WAIT"): 3,
            ("PendingEvaluation", "WAIT"): 1, ("OnHold", "HELD"): 1, ("Misconfigured", "CHANGE"): 1,
        }  # fmt: skip
        for group in groups:
            found = await get(shared, "workloads", verdict=group["verdict"], reason=group["token"])
            assert len(found["items"]) + found["others"] == group["jobs"]
            assert not (all_seen and found["others"])
        found = await get(shared, "workloads", unstartable="true")
        yours = len(found["items"])
        assert (never["yours"], never["count"]) == (yours, yours + found["others"])
        split = "" if all_seen else ": 1 of yours, 3 of others"
        assert never["text"] == f"4 jobs can never start as they are{split}"
    assert len((await get(shared, "workloads", verdict="CHANGE"))["items"]) == 1
    assert (await get(shared, "workloads", verdict="CHANGE", name="u0"))["others"] is None


async def test_a_part_of_a_name_finds_what_lives_however_old_it_is(
    api: Api, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ended job is found among the newest alone: here the last but one."""
    monkeypatch.setattr(listing, "RECENT", 1)
    await _filled(author)
    body = await get(api, "workloads", name="*", deleted="true")
    assert [row["uid"] for row in body["items"]] == ["u5", "u4", "u3", "u2", "u1", "u0"]


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("queue", {A: 3, B: 3}),
        ("user", {"alice": 3, "bob": 3}),
        ("state", {"Queued": 6}),
        ("reason", {"PendingEvaluation": 5, "TopologyPlacementFailed": 1}),
        ("name", {"team-a/sweep-*": 6}),
    ],
)
async def test_jobs_that_are_alike_are_one_line(
    api: Api, author: Author, by: str, groups: dict[str, int]
) -> None:
    await _filled(author)
    body = await get(api, "workloads", groupBy=by)
    assert body["items"] == []
    assert {group["key"]: group["jobs"] for group in body["groups"]} == groups
    assert body["groupsTotal"] == len(groups)
    assert all(group["amounts"][GPU] == str(2 * group["jobs"]) for group in body["groups"])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("workloads?sort=colour", "sort"),
        ("workloads?sort=name&state=Failed", "state"),
        ("workloads?groupBy=user&deleted=true", "deleted"),
        ("queues?state=closed", "state"),
        ("workloads?since=1700000000", "since"),
        ("workloads?since=0001-01-01T00:00:00%2B14:00", "since"),
        ("workloads?until=9999-12-31T23:59:59.999999Z", "until"),
        ("queues/root/history?until=9999-12-31T23:59:59-14:00", "until"),
        *((f"{path}?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since")
          for path in ("audit", "cycles", "events", "workloads", "queues/root/history")),
        ("events?type=workload.stat", "type"),
        ("events?type=jobs", "type"),
    ],
)  # fmt: skip
async def test_what_does_not_go_is_named(api: Api, query: str, field: str) -> None:
    refused = problem_of(await api.get(f"/api/v1/{query}"), "invalid_input")
    assert refused["errors"][0]["field"] == field
    assert refused["errors"][0]["hint"] or refused["errors"][0]["message"]


@pytest.mark.parametrize("query", ["events?queue", "audit?target", "changesets?root", "workloads?queue"])
async def test_a_queue_that_never_was_is_told_with_the_nearest(api: Api, author: Author, query: str) -> None:
    """An empty list would pass for a queue with which nothing was done."""
    await author.tree()
    refused = problem_of(await api.get(f"/api/v1/{query}={A}x"), "not_found")
    assert f"did you mean {A}" in refused["detail"]


async def test_what_was_done_with_a_deleted_queue_is_told(api: Api, author: Author) -> None:
    await author.tree()
    queues = {path: queue for path, queue in TREE["queues"].items() if path != A}
    await author.tree({**TREE, "queues": queues, "prune": True})
    problem_of(await api.get(f"/api/v1/queues/{A}"), "not_found")
    assert (await get(api, "audit", target=A))["items"]
    assert (await get(api, "changesets", root=A))["items"]


async def test_a_cursor_is_of_one_list_and_one_order(api: Api, author: Author) -> None:
    await _filled(author)
    following = (await get(api, "workloads", limit=1))["next"]
    for query in (f"workloads?sort=submitted&cursor={following}", f"queues?cursor={following}"):
        problem_of(await api.get(f"/api/v1/{query}"), "invalid_input")


async def test_queues_by_subtree_and_state(api: Api, author: Author) -> None:
    await author.tree()
    body = await get(api, "queues", queue="root.research", state="open", limit=2)
    assert [row["path"] for row in body["items"]] == ["root.research", A]
    assert (await get(api, "queues", state="held"))["items"] == []


@pytest.mark.parametrize("path", ["events", "audit", "cycles"])
async def test_history_between_two_times(api: Api, author: Author, path: str) -> None:
    await _filled(author)
    everything = len((await get(api, path))["items"])
    assert (
        len((await get(api, path, since="2001-01-01T00:00:00Z", until="2999-01-01T00:00:00Z"))["items"])
        == everything
    )
    assert (await get(api, path, since="2999-01-01T00:00:00Z"))["items"] == []
    assert (await get(api, path, until="2001-01-01T00:00:00Z"))["items"] == []


async def test_a_row_of_a_job_that_failed_has_the_cause(api: Api, author: Author) -> None:
    """What ended and why is one list, with the words of the job's own page. One that succeeded may have lost work."""
    said = "failed: pod bad-x on n1 ended with exit code 3"
    await author.tree()
    await author.submit(*(workload(name, queue=A, name=name) for name in ("bad", "good", "cut")))
    await author.step("bad", State.FAILED, note=said)
    await author.step("good", State.SUCCEEDED)
    await author.step("cut", State.SUCCEEDED, note="Complete by an eviction")
    rows = (await get(api, "workloads", state="Failed,Succeeded"))["items"]
    causes = {row["name"]: row["failure"] for row in rows}
    assert causes == {"bad": said, "good": None, "cut": "Complete by an eviction"}
    found = await get(api, "workloads/bad")
    assert found["failure"] == found["explanation"]["detail"]["failure"]["text"] == said

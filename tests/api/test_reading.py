"""Reads: amounts that add up, waiting jobs with one reason, pages without gaps or repeats."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from queuer.domain.quantity import parse_quantity
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State
from tests.api.identity import Api
from tests.api.rows import GPU, NOW, A, Author, B, changed, waits
from tests.api.test_why import moving
from tests.store.support import Eviction, workload


async def account(api: Api, path: str) -> dict[str, Any]:
    """The GPU account of a queue over all flavors."""
    queue = (await api.get(f"/api/v1/queues/{path}")).json()
    found: dict[str, Any] = next(a for a in queue["accounts"] if (a["resource"], a["flavor"]) == (GPU, None))
    return found


async def test_borrowed_lent_and_pending_are_told_apart(api: Api, author: Author) -> None:
    await author.tree()
    borrower, waiting = workload("b1", queue=B, pods=6, gpus=8), workload("a1", queue=A, pods=3, gpus=8)
    await author.submit(borrower, waiting)
    await author.cycle(admit=[borrower], explain={"a1": waits()})
    b, a = await account(api, B), await account(api, A)
    assert (b["used"], b["guaranteed"], b["borrowed"], b["lent"], b["pending"]) == (
        "48",
        "32",
        "16",
        "0",
        "0",
    )
    assert (a["used"], a["guaranteed"], a["borrowed"], a["lent"], a["pending"]) == (
        "0",
        "32",
        "0",
        "16",
        "24",
    )
    assert (a["starved"], b["starved"]) == (True, False)
    for state in (State.PLACING, State.RUNNING):
        await author.step("b1", state)
    runs = (await api.get("/api/v1/workloads/b1")).json()
    assert runs["queueBorrows"] == {GPU: "16"}, "nobody is guaranteed cpu or pods"
    said = {"label": "evictable", "text": "yes: its queue uses 16 gpu above its guarantee"}
    assert runs["safeUntil"] is None, "no queue on its path has a minRuntime"
    assert said in runs["explanation"]["paragraphs"]
    root = (await api.get("/api/v1/queues/root")).json()
    assert (root["pendingWorkloads"], root["admittedWorkloads"]) == (1, 1)
    assert (await account(api, "root"))["limit"] == "64"  # what the cycle saw is less than the 100 written


async def test_a_running_job_is_told_what_its_queue_borrows_of_its_flavor(api: Api, author: Author) -> None:
    """Idle guarantees of another flavor keep nobody's hands off it."""
    rows = [{"flavor": f, "resource": GPU, "guaranteed": n} for f, n in (("default", 16), ("a100", 32))]
    flavors = [{"name": "a100", "nodeLabels": {"gpu": "a100"}}, {"name": "default"}]
    await author.tree({**changed(team_b={"quota": rows}, team_a={}), "flavors": flavors})
    runs = workload("b1", queue=B, pods=6, gpus=8)
    await author.submit(runs)
    await author.cycle(admit=[runs])
    for state in (State.PLACING, State.RUNNING):
        await author.step("b1", state)
    assert (await api.get("/api/v1/workloads/b1")).json()["queueBorrows"] == {GPU: "32"}


async def test_what_children_use_adds_up_at_every_queue(api: Api, author: Author) -> None:
    await author.tree()
    made = [workload(f"w{n}", queue=(A, B)[n % 2], pods=n + 1, gpus=2) for n in range(6)]
    await author.submit(*made)
    await author.cycle(admit=made)
    queues = (await api.get("/api/v1/queues")).json()["items"]
    used = {
        (q["path"], a["resource"], a["flavor"]): parse_quantity(a["used"], resource=a["resource"])
        for q in queues
        for a in q["accounts"]
    }
    assert used["root", GPU, None] == 2 * (1 + 2 + 3 + 4 + 5 + 6)
    for queue in queues:
        children = [q["path"] for q in queues if q["parent"] == queue["path"]]
        for resource, flavor in {(a["resource"], a["flavor"]) for a in queue["accounts"]} if children else ():
            below = sum(used.get((child, resource, flavor), 0) for child in children)
            assert used[queue["path"], resource, flavor] == below


async def test_a_waiting_workload_has_one_reason_with_its_numbers(api: Api, author: Author) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A, pods=8, gpus=8, required="rack", name="llama"))
    await author.cycle(explain={"u1": waits()})
    found = (await api.get("/api/v1/workloads/u1/explanation")).json()
    assert (found["verdict"], found["primary"]["token"]) == ("WAIT", "TopologyPlacementFailed")
    assert found["primary"]["text"] == "no rack has 8 free nodes"
    assert found["primary"]["params"] == {"level": "rack", "best": "r07", "free": "6"}
    assert [other["token"] for other in found["others"]] == ["WaitingForQuota"]
    assert found["wouldAdmit"] == []  # worked out on a stored cycle, of which there is none
    assert found["cycle"] == 1
    assert found["ageSeconds"] > 0
    whole = (await api.get("/api/v1/workloads/by-ref/team-a/job/llama")).json()
    assert whole["explanation"] == {**found, **moving(whole["explanation"])}
    assert (whole["required"], whole["demand"][GPU], whole["podSets"][0]["requests"]["cpu"]) == (
        "rack",
        "64",
        "4",
    )


async def test_a_waiting_workload_knows_its_place_in_the_line(api: Api, author: Author) -> None:
    """By priority, submit time and uid; held jobs, other queues and what can never start do not count."""
    await author.tree()
    made = [
        workload("u1", queue=A, submitted=NOW + 1, priority=5),
        workload("u2", queue=A, submitted=NOW),
        workload("u3", queue=A, submitted=NOW + 2),
        workload("u3-b", queue=A, submitted=NOW + 2),
        workload("u4", queue="root.research.team-b", submitted=NOW - 9),
    ]
    await author.submit(*made)
    await author.submit(workload("u5", queue=A, submitted=NOW - 9), state=State.HELD)
    await author.misconfigured(workload("u6", queue=A, submitted=NOW - 9), "no such level")
    never = Reason(Token.TOPOLOGY_PLACEMENT_FAILED, {"unstartable": True}, "no rack is large enough")
    await author.submit(workload("u7", queue=A, submitted=NOW - 9))
    await author.cycle(explain={"u7": Explanation(primary=never)})
    places = {}
    for uid in ("u1", "u2", "u3", "u3-b", "u4", "u5", "u6", "u7"):
        found = (await api.get(f"/api/v1/workloads/{uid}/explanation")).json()
        places[uid] = found["detail"]["ahead"]
    line = {uid: {"gangs": n, "of": 4} for n, uid in enumerate(("u1", "u2", "u3", "u3-b"))}
    assert places == {**line, "u4": {"gangs": 0, "of": 1}, "u5": None, "u6": None, "u7": None}


async def test_who_was_evicted_knows_for_whom_and_why_for_as_long_as_it_waits(
    api: Api, author: Author
) -> None:
    """The reason that it waits for afterwards is another one."""
    await author.tree()
    made = workload("u1", queue=A)
    await author.submit(made)
    await author.cycle(admit=[made])
    note = "evicted for a job of root.research.team-b, which takes back what it is guaranteed"
    await author.submit(workload("u2", queue="root.research.team-b", namespace="team-b", name="other"))
    await author.evict(Eviction(uid="u1", cause="reclaim", patch={}, beneficiary="u2", note=note))
    await author.step("u1", State.QUEUED)
    await author.cycle(explain={"u1": waits()})
    found = (await api.get("/api/v1/workloads/u1/explanation")).json()
    told = found["detail"]["evicted"]
    at = datetime.fromisoformat(told["at"]).timestamp()
    assert (at, told["cause"], told["note"]) == (NOW + 60, "reclaim", note)
    assert told["reclaimAt"] == "root.research"
    whose = told["for"]
    assert (whose["uid"], whose["namespace"], whose["name"]) == ("u2", "team-b", "other")
    assert whose["queue"] == "root.research.team-b"
    assert whose["amounts"][GPU] == "1"


async def test_an_admitted_workload_says_where_and_waits_for_nothing(api: Api, author: Author) -> None:
    await author.tree()
    made = workload("u1", queue=A, pods=2)
    await author.submit(made)
    await author.cycle(explain={"u1": waits()})
    await author.cycle(admit=[made])
    await author.step("u1", State.PLACING)
    await author.step("u1", State.RUNNING, hosts={"main": {"n2": 1, "n3": 1}})
    found = (await api.get("/api/v1/workloads/u1")).json()
    assert (found["state"], found["reason"], found["explanation"]["primary"]) == ("Running", None, None)
    assert found["domains"] == ["r01"]
    place = found["admission"]["placements"][0]
    assert (place["nodes"], place["hosts"], place["held"]) == ({"n1": 2}, {"n2": 1, "n3": 1}, 2)
    [row] = (await api.get("/api/v1/workloads")).json()["items"]
    assert row["holds"] == found["holds"] == {GPU: "2", "cpu": "8", "pods": "2"}
    assert [m["text"] for m in found["timeline"] if m["what"] == "reason"] == [
        "TopologyPlacementFailed: no rack has 8 free nodes"
    ]


async def test_pages_neither_repeat_nor_skip_while_jobs_come_and_go(api: Api, author: Author) -> None:
    await author.tree()
    await author.submit(*(workload(f"u{n:02}", queue=A, submitted=NOW + n // 3) for n in range(25)))
    seen: list[str] = []
    params: dict[str, str] = {"limit": "4"}
    while True:
        answer = await api.get("/api/v1/workloads", params=params)
        page = answer.json()
        seen += [row["uid"] for row in page["items"]]
        await author.submit(workload(f"new{len(seen)}", queue=A, submitted=NOW + 1000 + len(seen)))
        if page["next"] is None:
            break
        params["cursor"] = page["next"]
    assert sorted(seen) == [f"u{n:02}" for n in range(25)]


async def test_what_no_cycle_has_looked_at_yet_says_so(api: Api, author: Author) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A))
    await author.submit(workload("u2", queue=A, hold=True), state=State.HELD)
    rows = (await api.get("/api/v1/workloads")).json()["items"]
    found = {row["uid"]: (row["reason"]["token"], row["reason"]["verdict"]) for row in rows}
    assert found == {"u1": ("PendingEvaluation", "WAIT"), "u2": ("OnHold", "HELD")}


async def test_a_deleted_job_is_history_and_waits_for_nothing(api: Api, author: Author) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A))
    await author.delete("u1")
    assert (await api.get("/api/v1/workloads")).json()["items"] == []
    (row,) = (await api.get("/api/v1/workloads", params={"deleted": "true"})).json()["items"]
    assert row["deleted"]
    assert row["reason"] is None
    assert (await api.get("/api/v1/queues/root")).json()["pendingWorkloads"] == 0
    history = (await api.get("/api/v1/workloads/by-ref/team-a/Job/u1")).json()
    assert history["timeline"][-1]["text"] == "the job was deleted"

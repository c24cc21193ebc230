"""Why a job waits is worked out in full on the newest stored cycle, as far as that speaks of what is recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api import latest_cycle
from queuer.domain.queue import Order, Policy, Queue, QueueTree, QuotaRow
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import Workload
from queuer.solver.records import Plan
from queuer.solver.stored import StoredCycle, encode
from queuer.store import commands, lookup
from queuer.store.commands import NewCommand
from queuer.store.engine import begin
from queuer.store.tables import CommandVerb
from tests.api.identity import Api
from tests.api.rows import GPU, A, Author, decided_on, two_racks
from tests.store import support
from tests.store.support import commit_cycle, workload

PER = {GPU: "8", "cpu": "4", "pods": "1"}


def decided(*waiting: Workload, order: Order = Order.PRIORITY) -> StoredCycle:
    """Two racks of two nodes, on which these wait."""
    tree = QueueTree.of([Queue(path="root", policy=Policy(order=order))])
    return decided_on(two_racks(tree, *(replace(made, queue="root") for made in waiting)))


async def why(api: Api, uid: str = "u1") -> dict[str, Any]:
    """The explanation, which is the same wherever it is asked for."""
    found: dict[str, Any] = (await api.get(f"/api/v1/workloads/{uid}/explanation")).json()
    for path in (uid, f"by-ref/team-a/job/{uid}"):
        whole = (await api.get(f"/api/v1/workloads/{path}")).json()
        assert whole["explanation"] == {**found, **moving(whole["explanation"])}
        assert whole["reason"]["text"] == found["primary"]["text"]
    return found


def moving(explanation: dict[str, Any]) -> dict[str, Any]:
    """The parts that tell how long ago something was."""
    return {key: explanation[key] for key in ("ageSeconds", "paragraphs")}


def said(detail: dict[str, Any]) -> set[str]:
    """The parts that are there."""
    return {part for part, told in detail.items() if told}


async def commit(author: Author, cycle: StoredCycle, **also: Any) -> Plan:
    """A cycle whose reasons are recorded, and which is kept."""
    assert cycle.plan is not None
    explanations = {uid: replace(told, detail=also) for uid, told in cycle.plan.explanations.items()}
    await author.cycle(explain=explanations)
    await author.keep(encode(cycle))
    return cycle.plan


async def test_it_is_worked_out_on_the_newest_cycle(api: Api, author: Author) -> None:
    """A job that can never start has no place in line, and no time to start at, whatever was recorded before."""
    await author.tree()
    made = workload("u1", queue=A, pods=3, gpus=8, required="rack")
    await author.submit(made)
    assert (await why(api))["primary"]["token"] == "PendingEvaluation"
    estimate = {"from": 60, "to": None}
    await commit(author, decided(made), estimate=estimate)
    found = await why(api)
    assert found["primary"]["text"].endswith("2 would fit in the best rack, r0, 1 would be missing.")
    assert found["primary"]["params"]["per"] == {GPU: "8", "cpu": "4"}
    assert (found["verdict"], found["primary"]["since"] is None) == ("CHANGE", False)
    assert [offer["change"] for offer in found["wouldAdmit"]] == [
        "pods anywhere",
        "at most 2 pods in main",
    ]
    detail = found["detail"]
    assert detail["need"] == [{"podSet": "main", "count": 3, "per": PER, "level": "rack"}]
    assert said(detail) == {"need", "available", "excluded"}


async def test_what_the_cycle_did_not_see_is_told_as_recorded(api: Api, author: Author) -> None:
    """A job that came since, or was edited; another reason than the cycle's; a cycle that nobody here can read."""
    await author.tree()
    made = workload("u1", queue=A, pods=3, gpus=8, required="rack")
    await author.submit(made, workload("u2", queue=A))
    await commit(author, decided(made))
    assert said((await why(api, "u2"))["detail"]) == {"ahead"}
    await author.submit(replace(made, priority=3))
    assert (await why(api))["primary"]["token"] == "PendingEvaluation"
    told = Explanation(primary=Reason(token=Token.WAITING_FOR_QUOTA, said="its namespace has no room"))
    await author.cycle(explain={"u1": told})
    assert ((found := await why(api))["primary"]["text"], found["wouldAdmit"]) == (
        "its namespace has no room",
        [],
    )
    plan = await commit(author, decided(made))
    await author.keep(b"queuer-cycle 0\n")
    found = await why(api)
    assert (found["primary"]["text"], found["wouldAdmit"]) == (plan.explanations["u1"].primary.text, [])


async def test_the_reason_is_told_while_nothing_answers_about_the_cycle(
    api: Api, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overloaded or broken child costs a job its details, never its reason; that more is unknown is told."""
    await author.tree()
    made = workload("u1", queue=A, pods=3, gpus=8, required="rack")
    await author.submit(made)
    await commit(author, decided(made))
    monkeypatch.setattr(latest_cycle, "LINE", 0)
    found = await why(api)
    assert found["primary"]["text"]
    assert found["wouldAdmit"] == []
    assert found["detail"]["noEstimate"].startswith("not known just now: ")
    assert any("not known just now" in row["text"] for row in found["paragraphs"])


async def test_what_it_may_evict_later_is_what_it_waits_for(api: Api, author: Author) -> None:
    """Not the end of jobs that declare none: its queue is guaranteed all, and minRuntime protects them for a while."""
    await author.tree()
    resting = Queue(path="root.b", policy=Policy(min_runtime=1e9))
    owned = Queue(path="root.a", quota=(QuotaRow(resource=GPU, guaranteed=32),))
    tree = QueueTree.of([Queue(path="root"), owned, resting])
    theirs = [workload(f"r{i}", queue="root.b", gpus=8) for i in (0, 2)]
    made = workload("u1", queue=A, pods=2, gpus=8, required="rack")
    await author.submit(made)
    waits = replace(made, queue="root.a")
    await commit(author, decided_on(two_racks(tree, waits, runs=dict(zip((0, 2), theirs, strict=True)))))
    found = (await api.get("/api/v1/workloads/u1/explanation")).json()
    assert [other["token"] for other in found["others"]] == [found["primary"]["token"]]
    assert (
        "0 may be evicted for it, 16 more when their minRuntime is over, the first in"
        in found["others"][0]["text"]
    )
    assert found["detail"]["noEstimate"].startswith(
        "no estimate: work that it may evict is protected by minRuntime"
    )


async def test_who_is_ordered_to_leave_declares_an_end(api: Api, author: Author) -> None:
    """An ordered eviction is in no stored cycle: only the tables know that the holder does not stay."""
    await author.tree()
    *runs, made = (workload(uid, queue=A, gpus=8) for uid in ("r0", "r1", "r2", "r3", "u1"))
    await author.submit(*runs, made)
    await author.cycle(admit=runs)
    root = QueueTree.of([Queue(path="root"), Queue(path="root.research"), Queue(path=A)])
    await commit(author, decided_on(two_racks(root, made, runs=dict(enumerate(runs)))))
    assert "team-a/r0 declares no end" in (await why(api))["detail"]["noEstimate"]
    orders = [NewCommand(verb=CommandVerb.EVICT, uid=each.uid, delay=600.0) for each in runs]
    async with begin(author.engine) as connection:
        await commands.add(connection, orders, actor="root", source="rest", reason="new switches")
    found = await why(api)
    assert found["detail"]["noEstimate"].startswith("no estimate: team-a/r0 is to be evicted by order")
    held = [row["text"] for row in found["paragraphs"] if row["label"] == "holds it"]
    assert held[0] == f"team-a/r0 in {A}: 8 gpu, evicted in 9m by order"
    assert found["do"] == "wait until team-a/r0 is evicted, as is ordered"
    assert found["next"] is None


async def test_a_newer_cycle_is_taken_up(api: Api, author: Author) -> None:
    await author.tree()
    for pods in (3, 5):
        made = workload("u1", queue=A, pods=pods, gpus=8, required="rack")
        await author.submit(made)
        await commit(author, decided(made))
        assert (await why(api))["detail"]["need"][0]["count"] == pods


async def test_a_range_is_told_with_how_many_of_the_last_week_held(
    api: Api, author: Author, engine: AsyncEngine
) -> None:
    """Those that started are counted: inside what they had been told, outside, or told nothing."""
    await author.tree()
    outcomes = (True, True, False, None)
    started = [workload(f"s{n}", queue=A) for n in range(len(outcomes))]
    await author.submit(*started, workload("u1", queue=A))
    async with begin(engine) as connection:
        at = await lookup.now(connection)
        await commit_cycle(
            connection,
            epoch=author.epoch,
            record=support.cycle(1, at=at),
            admissions=[
                replace(support.admission(made), hit=hit) for made, hit in zip(started, outcomes, strict=True)
            ],
            explanations={},
        )
    author.cycles = 1
    reason = Reason(token=Token.WAITING_FOR_QUOTA, said="no quota")
    await author.cycle(
        explain={"u1": Explanation(primary=reason, detail={"estimate": {"from": 0, "to": None}})}
    )
    told = (await why(api))["detail"]["estimate"]
    assert (told["n"], told["hitRate"]) == (3, 0.6667)

"""A queue is starved where others borrow the room that its next job lacks, and what can never start is no demand."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.models import instant
from queuer.domain.reasons import Explanation, Reason, Token, Verdict
from queuer.domain.workload import State
from queuer.store import rollup
from queuer.store.engine import begin
from tests.api.identity import Api
from tests.api.problems import problem_of
from tests.api.rows import GPU, NOW, A, Author, B, changed
from tests.store.support import workload

FIRST = NOW // 60 * 60 + 600
LACKS_ROOM = Explanation(primary=Reason(Token.TOPOLOGY_PLACEMENT_FAILED, {}, "said"))


def because(token: Token, **params: Any) -> Explanation:
    return Explanation(primary=Reason(token, params, "said"))


@pytest.mark.parametrize(
    ("told", "starved", "counted"),
    [
        (because(Token.TOPOLOGY_PLACEMENT_FAILED), True, True),
        (because(Token.TOPOLOGY_PLACEMENT_FAILED, unstartable=True), False, False),
        (because(Token.WAITING_FOR_QUOTA, queue="root", live=True), True, True),
        (because(Token.WAITING_FOR_QUOTA, queue="root.research"), True, True),
        (because(Token.WAITING_FOR_QUOTA, queue=A), False, True),
        (because(Token.EXCEEDS_MAX_QUOTA), False, False),
        (because(Token.MISCONFIGURED), False, False),
        (because(Token.ON_HOLD), False, False),
        (because(Token.SUSPENDED, queue=A), False, False),  # its queue is held or drains
        (None, False, True),
    ],
)
async def test_only_admissible_work_starves_its_queue(
    api: Api, author: Author, told: Explanation | None, starved: bool, counted: bool
) -> None:
    await author.tree()
    borrower = workload("b1", queue=B, pods=7, gpus=8)
    await author.submit(workload("u1", queue=A, pods=2, gpus=8), borrower)
    await author.cycle(admit=[borrower], explain={} if told is None else {"u1": told})
    queue = (await api.get(f"/api/v1/queues/{A}")).json()
    gpus = next((a for a in queue["accounts"] if a["resource"] == GPU), None)
    assert gpus is not None
    assert gpus["starved"] is starved
    held = told is not None and told.verdict is Verdict.HELD
    assert (queue["heldWorkloads"], queue["oldestPending"] is not None) == (int(held), counted)
    assert (gpus["pending"], queue["pendingWorkloads"]) == (("16", 1) if counted else ("0", 0))
    assert queue["unstartableWorkloads"] == (0 if counted or held else 1)
    assert (queue["oldestPending"] is not None) is counted
    listed = (await api.get("/api/v1/workloads?unstartable=true")).json()["items"]
    assert len(listed) == queue["unstartableWorkloads"]
    assert all(row["reason"]["unstartable"] for row in listed)


@pytest.mark.parametrize(
    ("asks", "runs", "borrows", "starved"),
    [
        (2, 1, 7, True),
        (4, 1, 7, False),  # 8 of its 32 are used: 24 are left, and the job asks 32
        (2, 1, 4, False),  # nobody borrows: the room is lost, in pieces, or taken beside the queues
    ],
)
async def test_what_is_left_of_a_guarantee_accuses_nobody(
    api: Api, author: Author, asks: int, runs: int, borrows: int, starved: bool
) -> None:
    """Pods of 8 GPUs on 64; each team is guaranteed 32."""
    await author.tree()
    runs_there = [workload("a1", queue=A, pods=runs, gpus=8), workload("b1", queue=B, pods=borrows, gpus=8)]
    await author.submit(workload("u1", queue=A, pods=asks, gpus=8), *runs_there)
    await author.cycle(admit=runs_there, explain={"u1": LACKS_ROOM})
    queue = (await api.get(f"/api/v1/queues/{A}")).json()
    gpus = next(a for a in queue["accounts"] if a["resource"] == GPU)
    assert gpus["starved"] is starved
    left = "24 gpu of the guarantee are left, and the smallest pending job asks 32 gpu"
    assert gpus["remainder"] == (left if asks == 4 else None), "information, beside the alarm"
    attention = (await api.get("/api/v1/overview")).json()["attention"]
    assert [item["ref"] for item in attention if item["kind"] == "starved"] == [A] * starved


async def test_guarantees_by_flavor_leave_no_remainder_of_all_together(api: Api, author: Author) -> None:
    """The idle half of one flavor is no room for a job that waits for the other."""
    rows = [{"flavor": f, "resource": GPU, "guaranteed": n} for f, n in (("default", 8), ("a100", 4))]
    flavors = [{"name": "a100", "nodeLabels": {"gpu": "a100"}}, {"name": "default"}]
    await author.tree({**changed(team_a={"quota": rows}), "flavors": flavors})
    runs = workload("a1", queue=A, gpus=8)
    await author.submit(runs, workload("u1", queue=A, gpus=8))
    await author.cycle(admit=[runs], explain={"u1": LACKS_ROOM})
    queue = (await api.get(f"/api/v1/queues/{A}")).json()
    gpus = [a for a in queue["accounts"] if a["resource"] == GPU]
    assert [a["remainder"] for a in gpus] == [None] * 3


async def test_the_clock_of_a_starved_queue_is_its_own(api: Api, author: Author, engine: AsyncEngine) -> None:
    """It runs from the first of the unbroken minutes in which the queue was starved, whoever leads meanwhile; the job
    may wait for much longer.
    """

    async def minute(at: float) -> None:
        async with begin(engine) as connection:
            await rollup.record(connection, author.epoch, at=at)

    async def since() -> datetime | None:
        found = (await api.get(f"/api/v1/queues/{A}")).json()["starvedSince"]
        return None if found is None else datetime.fromisoformat(found)

    await author.tree()
    borrower = workload("b1", queue=B, pods=7, gpus=8)
    await author.submit(workload("u1", queue=A, pods=2, gpus=8), borrower)
    await author.cycle(explain={"u1": LACKS_ROOM})
    await minute(FIRST)
    assert await since() is None
    await author.cycle(admit=[borrower])
    assert await since() is None, "for less than a minute"
    for at in (FIRST + 60, FIRST + 120):
        await minute(at)
    await author.cycle()
    begun = instant(FIRST + 60)
    assert await since() == begun
    successor = await Author.of(engine)
    successor.cycles = author.cycles
    await successor.cycle()
    assert await since() == begun
    async with begin(engine) as connection:
        await connection.execute(
            text("DELETE FROM usage_rollup WHERE at < to_timestamp(:at)"), {"at": FIRST + 60}
        )
    await successor.cycle()
    job = (await api.get("/api/v1/workloads/u1")).json()["explanation"]["primary"]
    assert await since() == datetime.fromisoformat(job["since"]) < begun, "longer than minutes are kept"


async def test_work_on_hold_starves_nobody(api: Api, author: Author) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A), state=State.HELD)
    queue = (await api.get(f"/api/v1/queues/{A}")).json()
    assert [a["starved"] for a in queue["accounts"]] == [False] * len(queue["accounts"])


@pytest.mark.parametrize(
    ("path", "near"), [("root.research.team-x", A), ("root.res", "root.research"), ("root.zzzzzz", None)]
)
async def test_a_filter_by_an_unknown_queue_names_the_nearest(
    api: Api, author: Author, path: str, near: str | None
) -> None:
    await author.tree()
    for address in (f"/api/v1/workloads?queue={path}", f"/api/v1/queues/{path}"):
        detail = problem_of(await api.get(address), "not_found")["detail"]
        assert f"there is no queue {path}" in detail
        assert near is None or near in detail

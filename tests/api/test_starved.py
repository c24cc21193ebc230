"""A queue is starved where room alone is lacking, and what can never start is no demand."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State
from tests.api.problems import problem_of
from tests.api.rows import GPU, Author
from tests.store.support import workload

A = "root.research.team-a"


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
        (None, False, True),
    ],
)
async def test_only_admissible_work_starves_its_queue(
    api: httpx2.AsyncClient, author: Author, told: Explanation | None, starved: bool, counted: bool
) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A, pods=2, gpus=8))
    await author.cycle(explain={} if told is None else {"u1": told})
    queue = (await api.get(f"/api/v1/queues/{A}")).json()
    gpus = next((a for a in queue["accounts"] if a["resource"] == GPU), None)
    assert gpus is not None
    assert gpus["starved"] is starved
    held = told is not None and told.primary.token is Token.ON_HOLD
    assert (queue["heldWorkloads"], queue["oldestPending"] is not None) == (int(held), counted)
    assert (gpus["pending"], queue["pendingWorkloads"]) == (("16", 1) if counted else ("0", 0))
    assert queue["unstartableWorkloads"] == (0 if counted or held else 1)
    assert (queue["oldestPending"] is not None) is counted
    listed = (await api.get("/api/v1/workloads?unstartable=true")).json()["items"]
    assert len(listed) == queue["unstartableWorkloads"]
    assert all(row["reason"]["unstartable"] for row in listed)


async def test_work_on_hold_starves_nobody(api: httpx2.AsyncClient, author: Author) -> None:
    await author.tree()
    await author.submit(workload("u1", queue=A), state=State.HELD)
    queue = (await api.get(f"/api/v1/queues/{A}")).json()
    assert [a["starved"] for a in queue["accounts"]] == [False] * len(queue["accounts"])


@pytest.mark.parametrize(
    ("path", "near"), [("root.research.team-x", A), ("root.res", "root.research"), ("root.zzzzzz", None)]
)
async def test_a_filter_by_an_unknown_queue_names_the_nearest(
    api: httpx2.AsyncClient, author: Author, path: str, near: str | None
) -> None:
    await author.tree()
    for address in (f"/api/v1/workloads?queue={path}", f"/api/v1/queues/{path}"):
        detail = problem_of(await api.get(address), status=404, code="not_found")["detail"]
        assert f"there is no queue {path}" in detail
        assert near is None or near in detail

"""Whether a job is unstartable, and whether it waits for room alone: SQL reads what the reason said."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.reasons import Explanation, Reason, Token
from queuer.store import workloads
from queuer.store.engine import begin
from queuer.store.waiting import ROWS, in_line
from tests.store.support import NOW, commit_cycle, cycle, intake_of, workload

PARAMS: tuple[dict[str, Any], ...] = (
    {},
    {"unstartable": True},
    {"unstartable": False},
    {"runs": True},
    {"headUnstartable": True},
    {"live": True, "queue": "root"},
    {"queue": "root.a"},
    {"queue": "root"},
    {"maxPending": 5},
    {"perUser": "maxRunning", "queue": "root"},
)


async def test_both_say_the_same(engine: AsyncEngine, epoch: int) -> None:
    reasons = {
        f"{token}-{n}": Reason(token, params, "said") for token in Token for n, params in enumerate(PARAMS)
    }
    made = [intake_of(workload(uid, queue="root.a")) for uid in reasons]
    async with begin(engine) as connection:
        await workloads.intake(connection, epoch, made, at=NOW)
        explained = {uid: Explanation(primary=reason) for uid, reason in reasons.items()}
        await commit_cycle(connection, epoch=epoch, record=cycle(1), explanations=explained)
        rows = (await connection.execute(text(ROWS))).all()
        ahead = await in_line(connection, queue="root.a", namespace=made[0].workload.namespace)
    said = {row.uid: (row.unstartable, row.admissible) for row in rows}
    assert said == {uid: (r.unstartable, r.starves("root.a")) for uid, r in reasons.items()}
    assert ahead == sum(not reason.unstartable for reason in reasons.values())
    assert set(said.values()) == {(True, False), (False, True), (False, False)}

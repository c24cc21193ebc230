"""No table grows for ever: each has a rule of retention that really deletes, or a bound that really holds."""

from __future__ import annotations

import asyncio
import time
from itertools import chain

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from bench.history import fill
from queuer.controller.health.metrics import Metrics
from queuer.controller.ledger.auditor import prune
from queuer.store import retention
from queuer.store.engine import begin
from queuer.store.retention import DAY, KEPT, RULES, Bound, Rule

JOBS, YEARS = 500, 3
_BESIDE = (
    # Rows that no job leaves behind.
    """INSERT INTO usage_rollup (queue, seconds, at, waiting, admitted, amounts)
    SELECT 'root', seconds, date_trunc('hour', now()) - n * interval '1 day', 0, 0, '{}'
    FROM generate_series(0, :days) AS n, (VALUES (60), (3600)) AS kinds (seconds)""",
    """INSERT INTO draft (id, at, expires, actor, source, writer, root, base, changes, report, effect)
    SELECT md5(n::text)::uuid, now() - n * interval '1 day', now(), '', '', 'api', 'root', 0, '[]', '{}', 'drain'
    FROM generate_series(0, :days) AS n""",
    """INSERT INTO session (digest, name, groups, expires)
    SELECT sha256(n::text::bytea), '', '{}', now() - n * interval '1 day' FROM generate_series(0, :days) AS n""",
    """INSERT INTO command (due, actor, source, verb, uid, reason, done_at, outcome)
    SELECT submitted, '', '', 'hold', uid, '', submitted, 'done' FROM workload WHERE :days > 0""",
)


async def test_every_table_has_a_rule_or_a_bound(engine: AsyncEngine) -> None:
    """A new table must say how its rows go."""
    ruled = {rule.table for rule in RULES}
    async with begin(engine) as connection:
        tables = (await retention.sizes(connection)).keys() - {"alembic_version"}
    assert ruled | KEPT.keys() == tables, "each table is in RULES or in KEPT"
    assert not ruled & KEPT.keys(), "a table that has a rule needs no other bound"


@pytest.mark.parametrize("name", [name for name, bound in KEPT.items() if bound is Bound.ONE_ROW])
async def test_one_row_is_all_that_a_table_takes(name: str, engine: AsyncEngine) -> None:
    """A second row is refused by the server, not by good manners."""
    assert "CHECK ((id = 1))" in await _constraints(engine, name)


LIVING = {name: bound for name, bound in KEPT.items() if bound in (Bound.WORKLOAD, Bound.CYCLE)}


@pytest.mark.parametrize("name", LIVING)
async def test_what_belongs_to_a_workload_goes_with_it(name: str, engine: AsyncEngine) -> None:
    """Deleting the workload deletes its rows; and workloads have a rule."""
    assert "FOREIGN KEY (uid) REFERENCES workload(uid) ON DELETE CASCADE" in await _constraints(engine, name)
    assert any(rule.table == "workload" for rule in RULES)


async def _constraints(engine: AsyncEngine, table: str) -> set[str]:
    statement = text(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = CAST(:name AS regclass)"
    )
    async with begin(engine) as connection:
        return set((await connection.execute(statement, {"name": table})).scalars())


async def test_the_past_goes_and_what_is_young_stays(
    engine: AsyncEngine, database_url: str, epoch: int
) -> None:
    """After some calls no rule has anything left to delete, and nothing younger than its age is missing."""
    await asyncio.to_thread(fill, database_url, jobs=JOBS, days=365 * YEARS, waiting=3, running=2)
    async with begin(engine) as connection:
        for statement in _BESIDE:
            await connection.execute(text(statement), {"days": 365 * YEARS})
        before = {rule: await _ages(connection, rule, now=time.time()) for rule in RULES}
        admissions = await _count(connection, "admission")
    assert all(old for old, _ in before.values()), "each rule has something to delete"
    now, calls = time.time(), 0
    for rule in RULES:
        gone = retention.BATCH
        while gone == retention.BATCH:
            async with begin(engine) as connection:
                gone = await retention.prune(connection, epoch, rule, now=now)
            calls += 1
    async with begin(engine) as connection:
        after = {rule: await _ages(connection, rule, now=now) for rule in RULES}
        assert [old for old, _ in after.values()] == [0] * len(RULES)
        assert [young for _, young in after.values()] == [young for _, young in before.values()]
        assert 0 < await _count(connection, "admission") < admissions
        live = await connection.execute(text("SELECT count(*) FROM workload WHERE uid LIKE 'l%'"))
        assert live.scalar_one() == 5
    assert calls < 3 * len(RULES)


class _SecondRound(Exception):
    pass


async def test_the_leader_goes_on_after_each_table(
    engine: AsyncEngine, database_url: str, epoch: int
) -> None:
    """A round over all rules is told in the log whatever tables it found something in, and the next one follows."""
    await asyncio.to_thread(fill, database_url, jobs=JOBS, days=365 * YEARS)
    times = chain([time.time()] * len(RULES), [None])

    def clock() -> float:
        if (now := next(times)) is None:
            raise _SecondRound
        return now

    with pytest.raises(_SecondRound):
        await prune(engine, metrics := Metrics(), epoch=epoch, clock=clock, every=0.0)
    tables = KEPT.keys() | {rule.table for rule in RULES} | {"alembic_version"}
    sizes = {
        name: metrics.registry.get_sample_value("queuer_table_bytes", {"table": name}) for name in tables
    }
    assert all(sizes.values()), "each table has a size"
    assert (sizes["workload"] or 0) > (sizes["leader"] or 0)
    async with begin(engine) as connection:
        left = [await _ages(connection, rule, now=time.time()) for rule in RULES]
    assert [old for old, _ in left] == [0] * len(RULES)


async def _ages(connection: AsyncConnection, rule: Rule, *, now: float) -> tuple[int, int]:
    """Rows that this rule is about: those that are too old, and the others."""
    found = await connection.execute(
        text(f"""SELECT count(*) FILTER (WHERE {rule.age} < to_timestamp(:before)) AS old,
            count(*) FILTER (WHERE {rule.age} >= to_timestamp(:before)) AS young
            FROM {rule.table} WHERE {rule.only}"""),
        {"before": now - rule.days * DAY},
    )
    row = found.one()
    return int(row.old), int(row.young)


async def _count(connection: AsyncConnection, table: str) -> int:
    return int((await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())

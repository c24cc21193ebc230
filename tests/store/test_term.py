"""A term of office on a fresh database: what goes on beside its decisions may fail without ending it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller import leadership
from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.cycle.forecast import Forecaster
from queuer.controller.cycle.recorder import Recorder
from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.leadership import Parts, serve_term
from queuer.controller.memory.live import HOUR, take_down_at
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.domain.workload import Cause, PodSet, State
from queuer.store import heartbeat, ledger, lookup, workloads
from queuer.store.engine import begin
from queuer.store.leader import Leadership
from queuer.store.workloads import Setback
from tests.store.support import (
    NOW,
    Eviction,
    admission,
    come,
    commit_cycle,
    cycle,
    evict,
    intake_of,
    ledger_row,
    start,
    take_step,
    workload,
)
from tests.store.terms import restarted

NOBODY = cast(Any, None)
"""Stands for what a term without work never asks."""


async def _term(
    engine: AsyncEngine, epoch: int, cycles: Path, *, state: ClusterState, metrics: Metrics
) -> None:
    """A term without work."""
    settings = Settings(database_url="", config_crs=False, cycles_dir=cycles)
    parts = Parts(
        settings=settings, access=NOBODY, client=NOBODY, solver=NOBODY, metrics=metrics,
        health=Health(stalled=settings.stalled),
    )  # fmt: skip
    await serve_term(
        Leadership(epoch=epoch, holder="test"), parts, state=state,
        jobs=ClusterJobs(NOBODY, state, NOBODY), engine=engine, wake=asyncio.Event(), recall=lambda _: None,
    )  # fmt: skip


async def test_a_term_on_a_machine_with_a_wrong_clock_keeps_the_time_of_the_database(
    engine: AsyncEngine, epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are compared with those of other terms, and by readers with PostgreSQL's clock."""
    monkeypatch.setattr("time.time", lambda: NOW - 24 * HOUR)
    term = asyncio.create_task(_term(engine, epoch, tmp_path, state=ClusterState(), metrics=Metrics()))
    try:
        async with asyncio.timeout(60):
            beat, now = None, NOW
            while beat is None and not term.done():
                async with begin(engine) as connection:
                    beat, now = await heartbeat.read(connection), await lookup.now(connection)
    finally:
        term.cancel()
        with suppress(asyncio.CancelledError):
            await term
    assert beat is not None
    assert beat.at == pytest.approx(now, abs=60.0)


@pytest.mark.parametrize(
    ("part", "method", "task"),
    [
        (Forecaster, "run", "forecaster"),
        (Recorder, "write_rows", "recorder"),
        (Recorder, "write_files", "cycle files"),
    ],
)
async def test_what_goes_on_beside_the_loop_is_started_again_when_it_fails(
    part: type,
    method: str,
    task: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    engine: AsyncEngine,
    epoch: int,
) -> None:
    """For every cause: no more processes or memory, a cycle that cannot be encoded."""
    starts, twice = 0, asyncio.Event()

    async def run(_: object) -> None:
        nonlocal starts
        starts += 1
        if starts > 1:
            twice.set()
        raise [OSError("no more processes"), ValueError("cannot be encoded")][starts % 2]

    monkeypatch.setattr(part, method, run)
    monkeypatch.setattr(leadership, "_AGAIN", 0.01)
    metrics, state = Metrics(), ClusterState()
    term = asyncio.create_task(_term(engine, epoch, tmp_path, state=state, metrics=metrics))
    again = asyncio.create_task(twice.wait())
    async with asyncio.timeout(60):
        await asyncio.wait({term, again}, return_when=asyncio.FIRST_COMPLETED)
    try:
        assert again.done()
        assert not term.done(), term.exception()
        shown = metrics.text((), state.rules.tree).decode()
        assert f'queuer_tasks_failed_total{{task="{task}"}}' in shown
    finally:
        again.cancel()
        term.cancel()
        with suppress(asyncio.CancelledError):
            await term


FATES: dict[str, tuple[str, State, str]] = {
    "leaves": ("b", State.EVICTING, "b"),
    "waits": ("bw", State.QUEUED, "b"),
    "runs": ("bwr", State.RUNNING, "b"),
    "went-twice": ("bwrcw", State.QUEUED, "c"),
    "runs-after-two": ("bwrcwr", State.RUNNING, "c"),
    "went-for-nobody": ("bwr-w", State.QUEUED, ""),
}
"""What became of work that ran, then its state, and for whose sake it was last evicted: `w` it waits again, `r` it runs
again, `-` it was evicted for nobody, else for the one of that letter.
"""


async def test_who_was_evicted_for_whom_is_known_to_who_leads_next(engine: AsyncEngine, epoch: int) -> None:
    """Whether it leaves, waits or runs again."""
    numbers = count(1)

    async def step(connection: AsyncConnection, uid: str, what: str, *, attempt: int) -> None:
        match what:
            case "r":
                rows = [admission(workload(uid), attempt=attempt)]
                await commit_cycle(connection, epoch=epoch, record=cycle(next(numbers)), admissions=rows)
                await take_step(connection, epoch, uid, State.RUNNING)
            case "w":
                await take_step(connection, epoch, uid, State.QUEUED)
            case _:
                by = None if what == "-" else what
                await evict(connection, epoch, [Eviction(uid=uid, cause="reclaim", beneficiary=by)], at=NOW)

    async with begin(engine) as connection:
        await come(connection, epoch, *map(workload, FATES))
        for uid, (fate, _, _) in FATES.items():
            for number, what in enumerate(["r", *fate]):
                await step(connection, uid, what, attempt=1 + fate[:number].count("w"))
    memory = await restarted(engine)
    found = {uid: (live.state, "".join(live.displaced_by)) for uid, live in memory.live.items()}
    assert found == {uid: (state, by) for uid, (_, state, by) in FATES.items()}


async def test_who_leads_next_knows_how_often_work_was_evicted_in_the_last_hour(
    engine: AsyncEngine, epoch: int
) -> None:
    """Else a restart would let the same gang go again and again. A job that its owner suspends is not
    evicted.
    """
    async with begin(engine) as connection:
        await come(connection, epoch, workload("a"), workload("b"))
        for number, at in enumerate((NOW - HOUR - 1.0, NOW - 90.0, NOW - 30.0), start=1):
            rows = [admission(workload(uid), attempt=number) for uid in ("a", "b")]
            record = cycle(number, at=at - 1.0)
            await commit_cycle(connection, epoch=epoch, record=record, admissions=rows)
            await evict(connection, epoch, [Eviction(uid="a", cause="reclaim")], at=at)
            await take_step(connection, epoch, "b", State.EVICTING, at=at, cause=Cause.SUSPENDED)
            for uid in ("a", "b"):
                await take_step(connection, epoch, uid, State.QUEUED, at=at + 1.0)
    memory = await restarted(engine)
    assert {uid: live.evictions for uid, live in memory.live.items()} == {
        "a": (NOW - 90.0, NOW - 30.0), "b": (),
    }  # fmt: skip


async def test_who_leads_next_knows_since_when_work_leaves(engine: AsyncEngine, epoch: int) -> None:
    """However long ago: its controller may have been dead for hours, and Queuer takes its pods down. A job that its
    owner suspended leaves since the new term began, and its pods are left alone.
    """
    ago = NOW - 3 * HOUR
    async with begin(engine) as connection:
        await start(connection, epoch, workload("a"), workload("b"), at=ago)
        await evict(connection, epoch, [Eviction(uid="a", cause="reclaim")], at=ago)
        await take_step(connection, epoch, "b", State.EVICTING, at=ago, cause=Cause.SUSPENDED)
    memory = await restarted(engine)
    assert {uid: live.left for uid, live in memory.live.items()} == {"a": ago, "b": NOW}
    taken_down = [take_down_at(memory.live[uid], after=60.0) for uid in ("a", "b")]
    assert taken_down == [ago + 60.0, inf]


async def test_no_rest_is_longer_because_the_clock_of_an_earlier_leader_was_ahead(
    engine: AsyncEngine, epoch: int
) -> None:
    late = NOW + 24 * HOUR
    left = [
        Setback(uid="late", avoid={"n1": late}, failures=2, rest=late),
        Setback(uid="soon", avoid={"n1": NOW + 5.0}, failures=2, rest=NOW + 5.0),
    ]
    async with begin(engine) as connection:
        rows = [intake_of(workload(each.uid)) for each in left]
        await workloads.intake(connection, epoch, rows, at=NOW)
        await workloads.set_back(connection, epoch, left)
    memory = await restarted(engine, longest=60.0)
    assert {uid: (live.rest, live.avoid["n1"]) for uid, live in memory.live.items()} == {
        "late": (NOW + 60.0, NOW + 60.0), "soon": (NOW + 5.0, NOW + 5.0),
    }  # fmt: skip


async def test_who_leads_next_knows_what_of_a_gang_is_charged_no_more(
    engine: AsyncEngine, epoch: int
) -> None:
    """Else its queue would seem to borrow for a moment, and work could be evicted for that."""
    made = workload("a", pods=8)
    other = PodSet(name="other", count=2, requests={"pods": 1})
    pair = replace(made, uid="b", pod_sets=(*made.pod_sets, other))
    lost = replace(pair, uid="c")
    async with begin(engine) as connection:
        await start(connection, epoch, made, pair, lost)
        fewer = ledger_row("b", count=3, amounts={"pods": 3}, opened=NOW + 10.0)
        gone = replace(fewer, pod_set="other", count=0, amounts={"pods": 0})
        await ledger.recharge(connection, epoch, [fewer, gone])
        await connection.execute(text("DELETE FROM ledger WHERE uid = 'c' AND pod_set = 'other'"))
    memory = await restarted(engine, now=NOW + 20.0)
    found = {uid: live.placement and live.placement.held for uid, live in memory.live.items()}
    assert found["a"] == {"main": 8}
    assert found["b"] == {"main": 3, "other": 0}
    assert found["c"] == {"main": 8, "other": 2}, "its lost row is the auditor's to write again"

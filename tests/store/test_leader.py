"""One leader at a time, and a former one changes nothing, whatever it believes."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.config import follow_objects
from queuer.domain.document import TreeDocument
from queuer.domain.queue import Queue
from queuer.domain.workload import State
from queuer.kube import config_crs
from queuer.kube.config_crs import Apply
from queuer.kube.config_set import ConfigSet
from queuer.store import heartbeat, ledger, outbox, retention, rollup, stored, workloads
from queuer.store.config import load_config
from queuer.store.engine import DatabaseUnavailable, begin
from queuer.store.leader import LeadershipLost, PoolerInBetween, check_epoch, lead, office
from queuer.store.outbox import Result
from queuer.store.tables import EntryKind, EntryOutcome
from tests.store.support import (
    NOW,
    Eviction,
    admission,
    come,
    commit_cycle,
    cycle,
    evict,
    ledger_row,
    take_office,
    take_step,
    waits,
    workload,
)
from tests.unit.make import entry_of
from tests.waiting import PATIENCE

Write = Callable[[AsyncConnection, int], Awaitable[Any]]
_KILL = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name LIKE 'queuer-leader%' AND datname = current_database()
"""
_ENTRY = entry_of("w1", EntryKind.EVICT, admission_id="00000000-0000-0000-0000-000000000001", at=NOW)
_RESULT = Result(entry=_ENTRY, outcome=EntryOutcome.APPLIED)
WRITES: dict[str, Write] = {
    "workloads.intake": lambda c, e: come(c, e, workload("w2")),
    "transitions.take": lambda c, e: take_step(c, e, "w1", State.HELD),
    "workloads.explain": lambda c, e: workloads.explain(c, e, {"w1": waits()}, at=NOW),
    "workloads.forget": lambda c, e: workloads.forget(c, e, ["w1"], NOW),
    "cycles.commit": lambda c, e: commit_cycle(
        c, epoch=e, record=cycle(1), admissions=[admission(workload("w1"))]
    ),
    "cycles.evict": lambda c, e: evict(c, e, [Eviction(uid="w1", cause="preempt")], at=NOW),
    "ledger.recharge": lambda c, e: ledger.recharge(c, e, [ledger_row("w1")]),
    "ledger.close": lambda c, e: ledger.close(c, e, ["w1"], NOW),
    "outbox.put": lambda c, e: outbox.put(c, e, [_ENTRY], at=NOW),
    "outbox.done": lambda c, e: outbox.done(c, e, [_RESULT], at=NOW),
    "stored.put": lambda c, e: stored.put(c, e, stored.StoredRow(cycle=1, at=NOW, seed=1, body=b"")),
    "heartbeat.write": lambda c, e: heartbeat.write(
        c, heartbeat.Heartbeat(holder="h", epoch=e, phase="leading", at=NOW, round_at=NOW)
    ),
    "rollup.sum_up": lambda c, e: rollup.sum_up(c, e, at=NOW),
    "rollup.record": lambda c, e: rollup.record(c, e, at=NOW),
    "retention.set_apart": lambda c, e: retention.set_apart(c, e, {"team-a": NOW}),
    "retention.prune": lambda c, e: retention.prune(c, e, retention.RULES[0], now=NOW),
}


@pytest.mark.parametrize("name", sorted(WRITES))
async def test_a_former_leader_writes_nothing(engine: AsyncEngine, epoch: int, name: str) -> None:
    """Each write of a controller is refused once another epoch is in office."""
    async with begin(engine) as connection:
        await come(connection, epoch, workload("w1"))
        assert await take_office(connection) == epoch + 1
    with pytest.raises(LeadershipLost):
        async with begin(engine) as connection:
            await WRITES[name](connection, epoch)


async def test_a_successor_waits_for_a_write_in_flight(engine: AsyncEngine, epoch: int) -> None:
    """No epoch begins between a leader's check and its commit."""
    async with begin(engine) as connection:
        await check_epoch(connection, epoch)

        async def succeed() -> int:
            async with begin(engine) as other:
                return await take_office(other)

        successor = asyncio.create_task(succeed())
        done, _ = await asyncio.wait([successor], timeout=0.3)
        assert not done
    assert await successor == epoch + 1


async def test_the_second_waits_and_then_has_the_next_epoch(database_url: str) -> None:
    """The lock is exclusive; it passes on when the holder is done, with a higher epoch."""
    async with asyncio.TaskGroup() as group, lead(database_url, holder="one") as first:
        second = group.create_task(_lead_once(database_url, "two"))
        done, _ = await asyncio.wait([second], timeout=0.3)
        assert not done
        assert not first.lost.is_set()
    assert second.result() == first.epoch + 1


async def test_a_term_ends_also_where_its_successor_has_the_same_epoch(
    database_url: str, engine: AsyncEngine
) -> None:
    """A replica with older data, or a restored backup, makes an epoch come twice."""
    async with lead(database_url, holder="one") as first:
        pass
    async with begin(engine) as connection:
        await connection.execute(text("UPDATE leader SET epoch = epoch - 1"))
    async with lead(database_url, holder="two") as second:
        assert second.epoch == first.epoch
        async with begin(second.engine_of(engine)) as connection:
            await check_epoch(connection, second.epoch)
        for former in (first.engine_of(engine), engine):
            with pytest.raises(LeadershipLost, match="another term"):
                async with begin(former) as connection:
                    await check_epoch(connection, first.epoch)


async def test_a_former_leader_applies_no_objects(
    engine: AsyncEngine, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listed them before it was frozen: the successor's newer ones stay."""

    async def run(*_: object, apply: Apply, **__: object) -> None:
        await apply(ConfigSet(document=TreeDocument(queues=(Queue(path="root.a"),))))
        async with begin(engine) as connection:
            await take_office(connection)
        with pytest.raises(LeadershipLost):
            await apply(ConfigSet(document=TreeDocument(queues=())))

    monkeypatch.setattr(config_crs, "run", run)
    await follow_objects(cast(Any, None), cast(Any, None), engine, epoch=epoch, actor="me")
    async with begin(engine) as connection:
        assert "root.a" in (await load_config(connection)).tree


async def test_readers_see_whether_somebody_holds_the_lock(engine: AsyncEngine, database_url: str) -> None:
    async with begin(engine) as connection:
        assert not (await office(connection)).held
    async with lead(database_url, holder="one"), begin(engine) as connection:
        assert (await office(connection)).held


async def test_a_silent_holder_loses_the_lock_to_the_server(database_url: str) -> None:
    """A frozen leader's connection stays open; the server ends its session after the lease."""
    thaw = threading.Event()
    try:
        async with lead(database_url, holder="frozen", lease=0.5, alive=thaw.wait) as first:
            async with asyncio.timeout(PATIENCE):
                assert await _lead_once(database_url, "two") == first.epoch + 1
            thaw.set()
            async with asyncio.timeout(PATIENCE):
                await first.lost.wait()
    finally:
        thaw.set()


async def test_a_busy_loop_keeps_the_lock(database_url: str) -> None:
    """Work that blocks the loop for longer than a lease is no reason to lead no more."""
    async with asyncio.TaskGroup() as group, lead(database_url, holder="busy", lease=0.5) as first:
        second = group.create_task(_lead_once(database_url, "two"))
        await asyncio.sleep(0)
        time.sleep(2.0)  # noqa: ASYNC251 -- the loop is what is held up
        done, _ = await asyncio.wait([second], timeout=1.0)
        assert not done
        assert not first.lost.is_set()
    assert second.result() == first.epoch + 1


async def test_a_loop_that_hangs_gives_the_lock_up(database_url: str) -> None:
    """The thread that keeps the lock must not keep it for a loop that will do nothing with it."""
    hangs = threading.Event()
    async with lead(database_url, holder="hung", lease=0.5, alive=lambda: not hangs.is_set()) as first:
        assert not first.lost.is_set()
        hangs.set()
        async with asyncio.timeout(PATIENCE):
            assert await _lead_once(database_url, "two") == first.epoch + 1
            await first.lost.wait()


async def test_waiting_for_the_lock_can_be_called_off(database_url: str) -> None:
    """A process that stands by stops when it is told to."""
    async with lead(database_url, holder="one"):
        waits = asyncio.create_task(_lead_once(database_url, "two"))
        await asyncio.wait([waits], timeout=0.3)
        waits.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([waits])
        assert waits.cancelled()


async def test_a_killed_session_is_noticed(database_url: str, engine: AsyncEngine) -> None:
    """The holder learns from its next heartbeat that its session is gone."""
    async with lead(database_url, holder="one", lease=0.5) as leadership:
        async with begin(engine) as connection:
            await connection.execute(text(_KILL))
        async with asyncio.timeout(PATIENCE):
            await leadership.lost.wait()


async def test_a_pooler_is_refused(database_url: str) -> None:
    """A backend id that is not the session's own gives the pooler away, before the lock means anything."""
    async with _pooler(database_url) as through:
        with pytest.raises(PoolerInBetween, match="direct URL"):
            await _lead_once(through, "one")


async def test_no_database_is_a_sentence() -> None:
    """A silent server is Unavailable, not a driver's exception."""
    with pytest.raises(DatabaseUnavailable, match="PostgreSQL"):
        await _lead_once("postgresql://queuer@127.0.0.1:1/queuer", "one")


async def _lead_once(url: str, holder: str) -> int:
    async with lead(url, holder=holder) as leadership:
        return leadership.epoch


@asynccontextmanager
async def _pooler(url: str) -> AsyncIterator[str]:
    """A relay that announces a backend id of its own, as connection poolers do."""
    target = make_url(url)
    served: asyncio.Queue[None] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(target.host, target.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(_relay(reader, upstream_writer))
            group.create_task(_relay_renaming(upstream_reader, writer))
        await upstream_writer.wait_closed()
        await writer.wait_closed()
        served.put_nowait(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield target.set(port=port, query={"sslmode": "disable", "gssencmode": "disable"}).render_as_string(
            hide_password=False
        )
        await served.get()


async def _relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()


async def _relay_renaming(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Relay messages of the server; BackendKeyData ('K') gets another process id."""
    try:
        while True:
            kind, length = struct.unpack("!cI", await source.readexactly(5))
            body = await source.readexactly(length - 4)
            if kind == b"K":
                body = struct.pack("!I", 4_242_424) + body[4:]
            sink.write(struct.pack("!cI", kind, length) + body)
            await sink.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        sink.close()

"""Usage is the sum of open rows, whatever order things happen in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.errors import Conflict
from queuer.domain.workload import IllegalTransition, State, Workload
from queuer.store import ledger, outbox, workloads
from queuer.store.engine import begin, make_engine
from queuer.store.ledger import LedgerRow
from queuer.store.outbox import Result
from queuer.store.tables import EntryOutcome
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
    workload,
)

ACTS = ("submit", "admit", "apply", "land", "evict", "requeue", "finish", "pods gone", "grow", "forget")
ADMITTED = (State.ADMITTED, State.PLACING, State.RUNNING)


@dataclass(slots=True)
class Known:
    """The model's record of one workload."""

    made: Workload
    state: State = State.QUEUED
    attempt: int = 1
    held: int = 0
    deleted: bool = False


@dataclass(slots=True)
class Model:
    """Workloads by name and the rules in plain Python; every act is tried, legal or not."""

    engine: AsyncEngine
    epoch: int
    known: dict[str, Known] = field(default_factory=dict)
    clock: float = NOW
    cycles: int = 0

    async def act(self, act: str, who: int) -> None:
        """One act on one workload, then the books are compared."""
        self.clock += 1
        uid = f"w{who}"
        if act == "submit":
            await self.submit(uid, who)
        elif uid in self.known:
            await getattr(self, act.replace(" ", "_"))(uid, self.known[uid])
        await self.compare()

    async def submit(self, uid: str, who: int) -> None:
        made = workload(uid, queue=f"root.{'ab'[who % 2]}", pods=who + 1)
        async with begin(self.engine) as connection:
            waits = await come(connection, self.epoch, made, at=self.clock)
        it = self.known.setdefault(uid, Known(made))
        if it.deleted and not it.held:  # it was taken for gone, and is there after all
            it.attempt += it.state is not State.QUEUED
            it.state, it.deleted = State.QUEUED, False
        assert waits == ({uid: it.attempt} if it.state is State.QUEUED else {})

    async def admit(self, uid: str, it: Known) -> None:
        self.cycles += 1
        new = [admission(it.made, attempt=it.attempt, flavor="f")]
        record = cycle(self.cycles, at=self.clock)
        legal = it.state is State.QUEUED and not it.deleted
        try:
            async with begin(self.engine) as connection:
                await commit_cycle(connection, epoch=self.epoch, record=record, admissions=new)
        except Conflict:
            assert not legal
            return
        assert legal
        it.state, it.held = State.ADMITTED, it.made.pod_sets[0].count

    async def apply(self, uid: str, it: Known) -> None:
        async with begin(self.engine) as connection:
            mine = [entry for entry in await outbox.undone(connection) if entry.uid == uid]
            results = [Result(entry=entry, outcome=EntryOutcome.APPLIED) for entry in mine]
            await outbox.done(connection, self.epoch, results, at=self.clock)
            await outbox.done(connection, self.epoch, results, at=self.clock)
        if it.state is State.ADMITTED and mine:
            await self.step(uid, it, State.PLACING)

    async def land(self, uid: str, it: Known) -> None:
        if it.state is State.PLACING:
            await self.step(uid, it, State.RUNNING)

    async def evict(self, uid: str, it: Known) -> None:
        eviction = Eviction(uid=uid, cause="reclaim")
        try:
            async with begin(self.engine) as connection:
                await evict(connection, self.epoch, [eviction], at=self.clock)
        except IllegalTransition:
            assert it.state not in ADMITTED
            return
        assert it.state in ADMITTED
        it.state = State.EVICTING

    async def requeue(self, uid: str, it: Known) -> None:
        if it.state is State.EVICTING:
            await self.step(uid, it, State.QUEUED)
            it.held, it.attempt = 0, it.attempt + 1

    async def finish(self, uid: str, it: Known) -> None:
        if it.state in (*ADMITTED, State.EVICTING):
            await self.step(uid, it, State.SUCCEEDED)

    async def pods_gone(self, uid: str, it: Known) -> None:
        if it.state.ended:
            async with begin(self.engine) as connection:
                closed = await ledger.close(connection, self.epoch, [uid], self.clock)
            assert (uid in closed) == (it.held > 0)
            it.held = 0

    async def grow(self, uid: str, it: Known) -> None:
        """At landing the live pods turned out to be more than was charged."""
        if it.state is State.RUNNING:
            it.held += 1
            async with begin(self.engine) as connection:
                await ledger.recharge(connection, self.epoch, [self.row(it)])

    async def forget(self, uid: str, it: Known) -> None:
        async with begin(self.engine) as connection:
            gone = await workloads.forget(connection, self.epoch, [uid], self.clock)
        assert gone == int(not it.deleted)
        it.deleted = True

    async def step(self, uid: str, it: Known, state: State) -> None:
        async with begin(self.engine) as connection:
            before = await take_step(connection, self.epoch, uid, state, at=self.clock)
        assert before is it.state
        it.state = state

    def row(self, it: Known) -> LedgerRow:
        per_pod = it.made.pod_sets[0].requests
        amounts = {name: amount * it.held for name, amount in per_pod.items()}
        return ledger_row(
            it.made.uid, attempt=it.attempt, queue=it.made.queue, flavor="f", count=it.held, amounts=amounts,
            opened=self.clock,
        )  # fmt: skip

    async def compare(self) -> None:
        """The ledger, the states and what a restart would load are those of the model."""
        async with begin(self.engine) as connection:
            used = await ledger.usage(connection)
            live = {stored.workload.uid: stored for stored in await workloads.load_live(connection)}
        expected: dict[str, dict[str, dict[str, int]]] = {}
        for it in self.known.values():
            for name, amount in it.made.pod_sets[0].requests.items():
                if it.held:
                    held = expected.setdefault(it.made.queue, {}).setdefault("f", {})
                    held[name] = held.get(name, 0) + amount * it.held
        assert used == expected
        alive = {uid for uid, it in self.known.items() if it.held or not (it.state.ended or it.deleted)}
        assert live.keys() == alive
        for uid in alive:
            assert (live[uid].state, live[uid].attempt) == (self.known[uid].state, self.known[uid].attempt)


@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 2)), min_size=5, max_size=25))
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_random_histories(database_url: str, acts: list[tuple[str, int]]) -> None:
    """Any order of acts on three workloads leaves the books as the plain model has them."""
    asyncio.run(_play(database_url, [("submit", 0), ("submit", 1), ("admit", 0), *acts]))


async def _play(url: str, acts: list[tuple[str, int]]) -> None:
    engine = make_engine(url, name="queuer-test")
    try:
        async with begin(engine) as connection:
            await connection.execute(text("TRUNCATE workload, ledger, cycle, event CASCADE"))
            model = Model(engine=engine, epoch=await take_office(connection))
        for act, who in acts:
            await model.act(act, who)
    finally:
        await engine.dispose()


async def test_a_pod_set_is_charged_once(engine: AsyncEngine, epoch: int) -> None:
    """A second open row for the same pod set is refused by the database itself."""
    row = ledger_row("w1")
    with pytest.raises(IntegrityError):
        async with begin(engine) as connection:
            await ledger.charge(connection, [row, replace(row, attempt=2)])
    async with begin(engine) as connection:
        assert await ledger.usage(connection) == {}


async def test_large_amounts_stay_exact(engine: AsyncEngine, epoch: int) -> None:
    """Bytes of a large cluster do not fit a float; sums are exact all the same."""
    rows = [ledger_row(uid, amounts={"memory": 2**61 + n}) for n, uid in enumerate(("w1", "w2", "w3"))]
    async with begin(engine) as connection:
        await ledger.charge(connection, rows)
        assert await ledger.usage(connection) == {"root.a": {"default": {"memory": 3 * 2**61 + 3}}}
        assert await ledger.load_open(connection) == rows

"""The stored cycle that answers are made from: a small one is always the newest, a large one is kept for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.cycles import newest
from queuer.api.cycles.newest import KEPT, SLOW, Newest
from queuer.store import stored as store
from queuer.store.stored import StoredRow


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("slow", [False, True])
async def test_a_cycle_that_is_slow_to_read_is_kept(monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    clock, stored = Clock(), [1]
    took = SLOW * 2 if slow else SLOW / 2

    def read(_body: bytes) -> None:
        clock.now += took

    async def number(_connection: AsyncConnection) -> int:
        return stored[-1]

    async def row(_connection: AsyncConnection) -> StoredRow:
        return StoredRow(cycle=stored[-1], at=0.0, seed=0, body=b"")

    monkeypatch.setattr(newest, "_read", read)
    monkeypatch.setattr(store, "newest_number", number)
    monkeypatch.setattr(store, "newest", row)
    kept, connection = Newest(clock=clock), cast(AsyncConnection, None)

    async def known() -> int | None:
        found = await kept.read(connection)
        await kept.explain(found, "u1")
        return None if found is None else found.cycle

    assert await known() == 1
    stored.append(2)
    assert await known() == (None if slow else 2)
    clock.now += KEPT * took + 0.001
    assert await known() == (2 if slow else None)


async def test_a_cycle_is_kept_for_longer_than_what_is_made_of_it_takes() -> None:
    clock = Clock()
    kept = Newest(clock=clock)

    def make() -> str:
        clock.now += 10
        return "standing"

    assert kept.made(make) == "standing"
    clock.now += KEPT * 10 - 0.001
    assert await kept.read(cast(AsyncConnection, None)) is None, "it does not even look"

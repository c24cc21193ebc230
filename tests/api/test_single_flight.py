"""Callers that ask at the same time get one answer, or one failure."""

from __future__ import annotations

import asyncio

from queuer.api.single_flight import SingleFlight


async def test_a_failure_is_told_to_all_who_waited_for_it() -> None:
    """Else each of them would wait for one more attempt that fails."""
    attempts, free = 0, asyncio.Event()

    async def renew(_: int | None) -> int:
        nonlocal attempts
        attempts += 1
        await free.wait()
        if attempts < 3:
            raise OSError("away")
        return 7

    times = iter(range(1, 100))
    flight = SingleFlight(renew, clock=lambda: float(next(times)))
    asking = [asyncio.create_task(flight()) for _ in range(20)]
    await asyncio.sleep(0)
    free.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in found] == [OSError] * 20
    assert attempts == 2  # the one that the first began, and one for those who asked during it
    assert await flight() == 7

"""Which decisions are kept as files, how many, and that nothing waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from queuer.controller.cycle.recorder import REGULAR_EVERY, Recorder
from queuer.domain.assignments import SolveStatus
from queuer.domain.queue import QueueTree
from queuer.solver.records import Budget, CycleStats, Snapshot
from queuer.solver.stored import StoredCycle, decode
from tests.solver.make import plan_of
from tests.waiting import beside, until

CYCLE = StoredCycle(
    snapshot=Snapshot(nodes=(), tree=QueueTree.of(())), now=5.0, seed=1, budget=Budget(), plan=plan_of()
)
FAILED = replace(CYCLE, plan=plan_of(stats=CycleStats(status=SolveStatus.FAILED, fallback="late")))


def recorder_of(directory: Path, clock: Callable[[], float] = lambda: 0.0) -> Recorder:
    """A recorder that never needs its database: nothing here is committed."""
    nobody = cast(Any, None)
    return Recorder(nobody, epoch=1, slow=1.0, directory=directory, kept=2, between=0.0, clock=clock)


@asynccontextmanager
async def recording(directory: Path, clock: Callable[[], float] = lambda: 0.0) -> AsyncIterator[Recorder]:
    recorder = recorder_of(directory, clock)
    async with beside(recorder.write_files()):
        yield recorder


async def keeps(directory: Path, recorder: Recorder, number: int, cycle: StoredCycle, kind: str) -> None:
    """A cycle is offered, and is there as a file."""
    recorder.offer(number, cycle, took=0.1, committed=False)
    await written(directory, f"{number:010}-{kind}.cycle")


async def written(directory: Path, name: str) -> None:
    await until((directory / name).exists)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_what_is_wrong_or_slow_is_kept_and_can_be_read(tmp_path: Path) -> None:
    async with recording(tmp_path / "new") as recorder:
        given = [(replace(CYCLE, plan=None), 0.1, "unsound"), (FAILED, 0.1, "failed"), (CYCLE, 1.5, "slow")]
        for number, (cycle, took, kind) in enumerate(given):
            recorder.offer(number, cycle, took=took, committed=False)
            name = f"{number:010}-{kind}.cycle"
            await written(tmp_path / "new", name)
            assert decode((tmp_path / "new" / name).read_bytes()) == cycle


async def test_of_ordinary_ones_one_a_minute(tmp_path: Path) -> None:
    now = 100.0
    async with recording(tmp_path, lambda: now) as recorder:
        await keeps(tmp_path, recorder, 1, CYCLE, "regular")
        now += REGULAR_EVERY / 2
        recorder.offer(2, CYCLE, took=0.1, committed=False)
        now += REGULAR_EVERY / 2
        await keeps(tmp_path, recorder, 3, CYCLE, "regular")
    assert not (tmp_path / "0000000002-regular.cycle").exists()


async def test_the_newest_of_each_kind_stay(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        await keeps(tmp_path, recorder, 1, CYCLE, "regular")
        for number in range(2, 7):
            await keeps(tmp_path, recorder, number, FAILED, "failed")
        # Written after the last one was pruned.
        await keeps(tmp_path, recorder, 7, replace(CYCLE, plan=None), "unsound")
    names = names_in(tmp_path)
    kept = ["0000000001-regular", "0000000005-failed", "0000000006-failed", "0000000007-unsound"]
    assert names == [f"{name}.cycle" for name in kept]


async def test_while_one_waits_others_pass_by(tmp_path: Path) -> None:
    recorder = recorder_of(tmp_path)
    for number in (1, 2, 3):
        # Nobody writes: neither blocked nor an error.
        recorder.offer(number, FAILED, took=0.1, committed=False)
    async with beside(recorder.write_files()):
        await written(tmp_path, "0000000001-failed.cycle")
    assert names_in(tmp_path) == ["0000000001-failed.cycle"]


async def test_a_file_that_waits_when_the_term_ends_is_written(tmp_path: Path) -> None:
    """The cycle whose commit ended the term is the one to look at again."""
    async with recording(tmp_path) as recorder:
        await asyncio.sleep(0)
        recorder.offer(1, FAILED, took=0.1, committed=False)
    await written(tmp_path, "0000000001-failed.cycle")


async def test_a_slow_database_keeps_no_file_back(tmp_path: Path) -> None:
    recorder = recorder_of(tmp_path)
    never = asyncio.Event()

    async def stands(number: int, cycle: StoredCycle) -> float:
        await never.wait()
        return 0.0

    recorder._write_row = stands  # type: ignore[method-assign]
    async with beside(recorder.write_rows()), beside(recorder.write_files()):
        for number in (1, 2):
            recorder.offer(number, FAILED, took=0.1, committed=True)
            await written(tmp_path, f"{number:010}-failed.cycle")


async def test_a_directory_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with recording(tmp_path / "file") as recorder:
        recorder.offer(1, FAILED, took=0.1, committed=False)
        await until(lambda: recorder._file is None)
        (tmp_path / "file").unlink()
        await keeps(tmp_path / "file", recorder, 2, FAILED, "failed")

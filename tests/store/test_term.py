"""A term of office on a fresh database: what goes on beside its decisions may fail without ending it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller import leadership
from queuer.controller.foretell import Foreteller
from queuer.controller.health import Health
from queuer.controller.jobs import ClusterJobs
from queuer.controller.leadership import Parts, serve_term
from queuer.controller.metrics import Metrics
from queuer.controller.recorder import Recorder
from queuer.controller.settings import Settings
from queuer.controller.state import ClusterState
from queuer.store.leader import Leadership

NOBODY = cast(Any, None)
"""Stands for what a term without work never asks."""


@pytest.mark.parametrize("part", [Foreteller, Recorder])
async def test_a_recorder_or_foreteller_that_fails_is_started_again(
    part: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: AsyncEngine, epoch: int
) -> None:
    """Whatever it fails of: no more processes or memory, a cycle that cannot be encoded."""
    starts, twice = 0, asyncio.Event()

    async def run(_: object) -> None:
        nonlocal starts
        starts += 1
        if starts > 1:
            twice.set()
        raise [OSError("no more processes"), ValueError("cannot be encoded")][starts % 2]

    monkeypatch.setattr(part, "run", run)
    monkeypatch.setattr(leadership, "_AGAIN", 0.01)
    settings = Settings(database_url="", config_crs=False, cycles_dir=tmp_path)
    parts = Parts(
        settings=settings, access=NOBODY, client=NOBODY, solver=NOBODY, metrics=Metrics(),
        health=Health(stalled=settings.stalled),
    )  # fmt: skip
    wake = asyncio.Event()
    state = ClusterState(on_change=wake.set)
    term = asyncio.create_task(
        serve_term(
            Leadership(epoch=epoch, holder="test"), parts, state=state,
            jobs=ClusterJobs(NOBODY, state, NOBODY), engine=engine, wake=wake,
        )
    )  # fmt: skip
    again = asyncio.create_task(twice.wait())
    async with asyncio.timeout(60):
        await asyncio.wait({term, again}, return_when=asyncio.FIRST_COMPLETED)
    try:
        assert again.done()
        assert not term.done(), term.exception()
    finally:
        again.cancel()
        term.cancel()
        with suppress(asyncio.CancelledError):
            await term

"""Live views that follow all topics of an API server for a while: what each is sent, and how late."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import aiohttp

from queuer.api.live.feed import A_CALLER


@dataclass(slots=True)
class View:
    """One of them. `lags`: seconds from the end of a cycle until its viewer knew, each cycle once."""

    received: int = 0
    messages: int = 0
    resets: int = 0
    lags: list[float] = field(default_factory=list)

    async def follow(self, session: aiohttp.ClientSession, url: str, user: str) -> None:
        """Until cancelled, or the stream ends or breaks off."""
        with suppress(aiohttp.ClientError):
            await self._follow(session, url, user)

    async def _follow(self, session: aiohttp.ClientSession, url: str, user: str) -> None:
        headers = {"Authorization": f"Bearer {user}", "Accept-Encoding": "gzip"}
        async with session.get(url, headers=headers) as answer:
            answer.raise_for_status()
            event = ""
            async for line in answer.content:
                self.received += len(line)
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    event = value
                elif name == "data":
                    self._hear(event, json.loads(value))

    def _hear(self, event: str, data: Any) -> None:
        self.messages += 1
        self.resets += event == "reset"
        if event == "cycle":
            self.lags.append(time.time() - datetime.fromisoformat(data["at"]).timestamp())


async def followed(base: str, users: Sequence[str], *, clients: int, seconds: float) -> dict[str, Any]:
    """Figures of so many views of these users, each of whom has as many as one may."""
    views = [View() for _ in range(clients)]
    connector = aiohttp.TCPConnector(limit=0)
    limits = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=limits, read_bufsize=2**20) as session,
        asyncio.TaskGroup() as group,
    ):
        tasks = [
            group.create_task(view.follow(session, f"{base}/stream", users[number // A_CALLER % len(users)]))
            for number, view in enumerate(views)
        ]
        await asyncio.sleep(seconds / 6)  # all have begun
        before = [(view.received, view.messages, view.resets) for view in views]
        for view in views:
            view.lags.clear()
        began = time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        alive = sum(not task.done() for task in tasks)
        for task in tasks:
            task.cancel()
    rates = [(v.received - b[0]) / took / 1000 for v, b in zip(views, before, strict=True)]
    lags = [lag for view in views for lag in view.lags]
    return {
        "clients": alive,
        "stream_kbps": round(max(rates), 2),
        "stream_mean_kbps": round(sum(rates) / len(rates), 2),
        "stream_lag_p95_s": round(percentile(lags, 0.95), 2),
        "messages_a_second": round(
            sum(v.messages - b[1] for v, b in zip(views, before, strict=True)) / took, 1
        ),
        "resets": sum(v.resets - b[2] for v, b in zip(views, before, strict=True)),
    }


def percentile(values: Sequence[float], part: float) -> float:
    """The least value that at least this part of all is not above; 0 where there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0

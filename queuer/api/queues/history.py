"""A queue's use and demand over time, from the rollup, and the waits of jobs that started."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.models import instant
from queuer.api.queues import models
from queuer.domain.errors import InvalidInput
from queuer.domain.fields import parse_duration
from queuer.store import rollup
from queuer.store.rollup import Period, UsagePoint

DAY = 86_400.0
MOST_POINTS = 2_500
MINUTES_KEPT = 2 * DAY
NEAR = 2 * 3600.0
"""Seconds before a moment within which a row still tells of it; no hour is kept before it is over."""
_WORDS = ("used", "guaranteed", "borrowed", "lent", "pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From `since` to before `until` in points of `step` seconds."""

    since: float
    until: float
    step: int

    @property
    def period(self) -> Period:
        """The rows that the points are made of."""
        return Period.HOUR if self.step % Period.HOUR == 0 else Period.MINUTE


def window(step: str | None, since: datetime | None, until: datetime | None, *, now: float) -> Window:
    """The last day in steps of 5 min unless said. Raises InvalidInput for what no rows are kept of."""
    end = now if until is None else _seconds(until)
    start = max(0.0, end - DAY) if since is None else _seconds(since)
    if not start < end:
        raise InvalidInput.at("since", "is not before until", "leave out until for now")
    recent = now - start <= MINUTES_KEPT
    asked = parse_duration(step, field="step") if step else 300.0 if recent else 3600.0
    if asked < Period.MINUTE or asked % Period.MINUTE:
        raise InvalidInput.at("step", f"{step} is no whole number of minutes", "write e.g. 5m, 1h or 1d")
    found = Window(since=start, until=end, step=int(asked))
    if found.period is Period.MINUTE and not recent:
        raise InvalidInput.at(
            "step", "minutes are kept for two days", "write 1h or another whole number of hours"
        )
    if (end - start) / found.step > MOST_POINTS:
        raise InvalidInput.at(
            "step", f"more than {MOST_POINTS} points", "take longer steps or a shorter time"
        )
    return found


def _seconds(at: datetime) -> float:
    return max(0.0, at.timestamp())


async def history(connection: AsyncConnection, queue: str, asked: Window) -> models.History:
    """Averages over each step that has rows; who was not written down while nobody led is missing."""
    rows = await rollup.history(connection, queue, period=asked.period, since=asked.since, until=asked.until)
    started = await rollup.waits(connection, queue, since=asked.since, until=asked.until)
    return models.History(
        queue=queue,
        since=instant(asked.since),
        until=instant(asked.until),
        step_seconds=asked.step,
        points=[_point(at, group) for at, group in steps(rows, asked.step).items()],
        waits=models.Waits(started=started.started, p50_seconds=started.p50, p90_seconds=started.p90),
    )


def steps(rows: Sequence[UsagePoint], step: int) -> dict[float, list[UsagePoint]]:
    """Rows by the start of their step, oldest first.

    Rows before the first that has amounts are left out of its step: no average mixes in the time before the tree.
    """
    begun = next((row.at for row in rows if row.amounts), 0.0)
    found: dict[float, list[UsagePoint]] = {}
    for row in rows:
        at = row.at // step * step
        if row.at >= begun or at + step <= begun:
            found.setdefault(at, []).append(row)
    return found


def averages(rows: list[UsagePoint]) -> dict[tuple[str, str | None], dict[str, int]]:
    """By resource and flavor; an account that a row lacks was 0 there. `limit` is the last that was said."""
    found: dict[tuple[str, str | None], dict[str, int]] = defaultdict(dict)
    for row in rows:
        for amounts in row.amounts:
            account = found[amounts.resource, amounts.flavor]
            for word in _WORDS:
                account[word] = account.get(word, 0) + getattr(amounts, word)
            if amounts.limit is not None:
                account["limit"] = amounts.limit * len(rows)
    return {
        key: {word: round(n / len(rows)) for word, n in account.items()} for key, account in found.items()
    }


async def tree(connection: AsyncConnection, asked: datetime, *, now: float) -> models.PastTree:
    """All queues as the last row up to a moment has them: of its minute while minutes are kept, else of its hour."""
    moment = _seconds(asked)
    if moment > now:
        raise InvalidInput.at("at", "is in the future", "leave it out and ask /queues for now")
    period = Period.MINUTE if now - moment <= MINUTES_KEPT else Period.HOUR
    found = await rollup.tree(connection, period=period, since=max(0.0, moment - NEAR), until=moment)
    told = [(path, _point(row.at, [row])) for path, row in found.items()]
    return models.PastTree(
        asked=instant(moment),
        at=told[0][1].at if told else None,
        step_seconds=period,
        items=[models.PastQueue(path=path, **point.model_dump(exclude={"at"})) for path, point in told],
    )


def _point(at: float, rows: list[UsagePoint]) -> models.HistoryPoint:
    accounts = [
        models.HistoryAccount.model_validate({"resource": resource, "flavor": flavor, **account})
        for (resource, flavor), account in sorted(averages(rows).items(), key=str)
    ]
    return models.HistoryPoint(
        at=instant(at),
        pending_workloads=round(sum(row.waiting for row in rows) / len(rows)),
        admitted_workloads=round(sum(row.admitted for row in rows) / len(rows)),
        accounts=accounts,
    )

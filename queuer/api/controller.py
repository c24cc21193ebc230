"""Whether somebody decides: what every answer that speaks of waiting says of the controller.

The lock of the leader tells that a controller is gone, the heartbeat that one hangs. A controller that idles writes
it too, so that idle and dead are two things.
"""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, Request, Response
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.deps import Engine, Settings
from queuer.api.models import Instant, Model, instant
from queuer.api.single_flight import SingleFlight
from queuer.domain.errors import QueuerError
from queuer.domain.reasons import Reason, Token, moment
from queuer.store import heartbeat, leader, lookup
from queuer.store.engine import DatabaseUnavailable, begin, make_engine
from queuer.store.heartbeat import Heartbeat
from queuer.store.leader import Office

_LEADING, _DECIDING, _FAILING = "leading", "deciding", "failing"
"""The phases of a term of office that goes on: a decision has been under way for seconds, or the last had no plan."""
HEADER = "Queuer-Controller"
"""Of every answer while nobody decides: since when, and that nothing starts."""
LOOK = 2.0
"""Seconds for which one look at the controller is kept."""
SILENCE = 4.0
"""Seconds that a look may take, less than a connection. Then PostgreSQL hangs: it answers nothing."""
AWAY_AFTER = 1.5
"""Seconds without an answer of Kubernetes after which it is told; with report, beat and look within 5 s."""


class ControllerState(StrEnum):
    """`idle`: it is there and has had nothing to decide. `away`: it is there, but Kubernetes does not answer
    it. `unguarded`: it is there, and admits nothing new without the policies queuer-guard, or on a Kubernetes
    version that Queuer refuses. `failing`: its last decision had no sound plan. `stale`: it is gone, silent, its
    term has ended, or a new one has not read the cluster yet. `never`: it has never been heard of.
    """

    LEADING = "leading"
    IDLE = "idle"
    AWAY = "away"
    UNGUARDED = "unguarded"
    FAILING = "failing"
    STALE = "stale"
    NEVER = "never"

    @property
    def decides(self) -> bool:
        """Whether what may start would start."""
        return self in (ControllerState.LEADING, ControllerState.IDLE)


class Controller(Model):
    """The controller that leads, by its last sign of life."""

    state: ControllerState
    at: Instant | None = Field(description="The last sign of life of its loop.")
    cycle: int | None = Field(description="The last decision.")
    cycle_age_seconds: float | None
    waiting: int | None = Field(description="Workloads that the last decision left waiting.")
    text: str


async def controller(connection: AsyncConnection, *, stale_after: float) -> Controller:
    """The controller's state as far as it is known. `stale_after`: seconds of silence after which it is taken
    to be gone.
    """
    beat = await heartbeat.read(connection)
    if beat is None:
        text = "no controller has ever led on this database: nothing starts"
        state = ControllerState.NEVER
        return Controller(state=state, at=None, cycle=None, cycle_age_seconds=None, waiting=None, text=text)
    now, begun = await lookup.now(connection), await leader.office(connection)
    ended = begun.epoch != beat.epoch or beat.phase not in (_LEADING, _DECIDING, _FAILING) or not begun.held
    state = ControllerState.STALE if ended else _state(beat, now=now, stale_after=stale_after)
    cycle = beat.cycle
    return Controller(
        state=state,
        at=instant(beat.round_at),
        cycle=None if cycle is None else cycle.id,
        cycle_age_seconds=None if cycle is None else max(0.0, now - cycle.at),
        waiting=None if cycle is None else cycle.waiting,
        text=_ended(beat, begun) if ended else _text(state, beat, now=now, stale_after=stale_after),
    )


async def _leader(engine: Engine, settings: Settings) -> Controller:
    async with begin(engine) as connection:
        return await controller(connection, stale_after=settings.stale_after)


# A route names it before Snapshot, so that it holds one connection at a time.
Leader = Annotated[Controller, Depends(_leader)]
"""The controller's state, for every answer that speaks of waiting."""


class ControllerWatch:
    """Tells every answer whether somebody decides.

    It looks every other second at most. Its session is its own, so a crowded pool does not pass for a PostgreSQL that
    hangs.
    """

    def __init__(self, database_url: str, *, stale_after: float) -> None:
        self._engine = make_engine(database_url, name="queuer-api-look", pool_size=0)
        self._stale_after = stale_after
        self._looks = SingleFlight(self._look)

    async def text(self) -> str:
        """Why nothing starts, "" while somebody decides. Raises DatabaseUnavailable, TimeoutError after SILENCE."""
        look = asyncio.ensure_future(self._looks())
        look.add_done_callback(lambda done: done.cancelled() or done.exception())  # maybe nobody hears it
        if not (await asyncio.wait([look], timeout=SILENCE))[0]:
            look.cancel()  # not awaited: psycopg asks a server that hangs for seconds to end the query
            raise TimeoutError
        return look.result()[1]

    async def _look(self, known: tuple[float, str] | None) -> tuple[float, str]:
        """Until when the text is kept, and the text."""
        if known is not None and time.monotonic() < known[0]:
            return known
        async with begin(self._engine) as connection:
            found = await controller(connection, stale_after=self._stale_after)
        then = "; what is shown is from then" if found.at else ""
        return time.monotonic() + LOOK, "" if found.state.decides else f"{found.text}{then}"


async def say_who_decides(request: Request, response: Response) -> None:
    """Put it into the header of the answer, and of the problem that may come in its place.

    Raises DatabaseUnavailable: an answer would wait as long as PostgreSQL hangs.
    """
    watch: ControllerWatch = request.app.state.controller
    try:
        text = await watch.text()
    except TimeoutError:
        raise DatabaseUnavailable(f"PostgreSQL has not answered for {SILENCE:g} s") from None
    except QueuerError:
        return  # the answer itself says that the database is away
    if text:
        request.state.headers = {HEADER: text.encode("latin-1", "replace").decode("latin-1")}
        response.headers.update(request.state.headers)


def stale(found: Controller) -> Reason | None:
    """Why nothing that waits can start, if nobody decides."""
    if found.state.decides:
        return None
    text = f"{found.text[0].upper()}{found.text[1:]}."
    return Reason(Token.CONTROLLER_STALE, {"state": found.state}, text)


def _state(beat: Heartbeat, *, now: float, stale_after: float) -> ControllerState:
    if now - beat.round_at > stale_after:
        return ControllerState.STALE
    if beat.away_at is not None and now - beat.away_at > AWAY_AFTER:
        return ControllerState.AWAY
    if beat.unguarded is not None:
        return ControllerState.UNGUARDED
    if beat.phase == _FAILING:
        return ControllerState.FAILING
    quiet = beat.phase != _DECIDING and (beat.cycle is None or now - beat.cycle.at > stale_after)
    return ControllerState.IDLE if quiet else ControllerState.LEADING


def _ended(beat: Heartbeat, begun: Office) -> str:
    """The sentence on a term that has ended. A new one gives its first sign once it has read everything."""
    if not begun.held or begun.epoch == beat.epoch or begun.since is None:
        return f"nobody decides since {moment(beat.at)}, when the last term of office ended: nothing starts"
    return (
        f"a controller took office at {moment(begun.since)} and has not read everything yet: nothing starts "
        "until it has; where that does not end its log says why"
    )


def _text(state: ControllerState, beat: Heartbeat, *, now: float, stale_after: float) -> str:
    if state is ControllerState.STALE:
        gone = now - beat.at > stale_after
        what = (
            "the controller has not been heard of"
            if gone
            else "the loop of the controller has not gone round"
        )
        return f"{what} since {moment(beat.round_at)}: nothing starts until it does"
    if state is ControllerState.AWAY and beat.away_at is not None:
        said = f"Kubernetes has not answered the controller since {moment(beat.away_at)}"
        return f"{said}: nothing starts until it does, what runs goes on"
    if state is ControllerState.UNGUARDED:
        return f"nothing new is admitted, what runs goes on: {beat.unguarded}"
    if state is ControllerState.FAILING:
        said = "the last decision had no sound plan, and the controller's log says why"
        return f"nothing new starts, what runs goes on: {said}"
    if state is ControllerState.IDLE:
        return "the controller is idle: there was nothing to decide"
    if beat.phase == _DECIDING:
        last = "it has not decided before" if beat.cycle is None else f"its last was cycle {beat.cycle.id}"
        return f"the controller leads: a decision takes long; {last}"
    if beat.cycle is None:
        return "the controller leads: it has not decided yet"
    return "the controller leads"

"""`queuer top`: the cluster at a glance, live in the terminal. It polls; `q` and Ctrl-C leave a clean terminal.

A thread of its own fetches answers, so that a server that hangs delays nobody who wants to leave. A frame that could
not be renewed turns grey and says how old it is.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from queuer.cli.client import Client
from queuer.cli.failures import CommandFailed
from queuer.cli.output import Column, ago, console, decided, say, styled, table
from queuer.cli.tree import main_resource, tree_rows
from queuer.domain.quantity import amount_text, readable

LEAST_SECONDS = 2.0
_BLINK = 0.25
_PIPED = 10_000
_STATES = ("Queued", "Held", "Admitted", "Placing", "Running", "Evicting")
_MOST_ATTENTION = 5
_AROUND = 9
"""Lines beside those of queues and of what needs somebody."""
_COLUMNS = (
    Column("QUEUE", "name"),
    Column("USED/GUAR", "use", right=True),
    Column("PENDING", "amount", right=True),
    Column("JOBS", "jobs", right=True),
    Column("OLDEST", "oldest", right=True),
    Column("BAR", "bar"),
)


def top(
    *,
    every: Annotated[
        float, typer.Option(min=LEAST_SECONDS, max=60.0, help="Seconds between two looks.")
    ] = LEAST_SECONDS,
) -> None:
    """Show jobs, queues and the last cycle, live; one frame where there is no terminal."""
    with Client.from_env(quiet=True) as client:
        first = Seen.of(client)
        if not sys.stdout.isatty():
            console().print(frame(first, now=datetime.now(tz=UTC), height=_PIPED))
            return
        try:
            _live(Feed(client, first, every=every))
        except KeyboardInterrupt:
            say("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The last answers. `stale`: the reason why there is no newer one, "" where they are new."""

    overview: Mapping[str, Any]
    queues: Any
    stale: str = ""

    @classmethod
    def of(cls, client: Client) -> Seen:
        """The API's answers now. Raises CommandFailed."""
        return cls(overview=client.get("/overview"), queues=client.get("/queues")["items"])


class Feed(threading.Thread):
    """Fetches until it is closed; `seen` is always the newest. An answer that is under way is not waited for."""

    def __init__(self, client: Client, first: Seen, *, every: float) -> None:
        super().__init__(daemon=True, name="feed")
        self.seen = first
        self._client, self._every = client, every
        self._closing = threading.Event()
        self.close = self._closing.set

    def run(self) -> None:
        """Fetch, pause, and go on."""
        while not self._closing.wait(self._every):
            try:
                self.seen = Seen.of(self._client)
            except CommandFailed as error:
                self.seen = replace(self.seen, stale=error.message)
            except Exception:
                if self._closing.is_set():
                    return  # the session was closed under an answer
                raise


def _live(feed: Feed) -> None:
    screen = Console(highlight=False, markup=False, emoji=False)
    feed.start()
    try:
        with keys() as pressed, Live(console=screen, screen=True, auto_refresh=False) as live:
            while pressed() not in ("q", "Q"):
                live.update(frame(feed.seen, now=datetime.now(tz=UTC), height=screen.height), refresh=True)
    finally:
        feed.close()


@contextmanager
def keys() -> Iterator[Callable[[], str]]:
    """A function that waits a moment for a key and returns it, "" for none. The terminal is put back at the end."""
    terminal = sys.stdin.isatty()
    watched = [sys.stdin.fileno()] if terminal else []

    def pressed() -> str:
        ready, _, _ = select.select(watched, [], [], _BLINK)
        return os.read(ready[0], 1).decode(errors="replace") if ready else ""

    if not terminal:
        yield pressed
        return
    import termios
    import tty

    (here,) = watched
    before = termios.tcgetattr(here)
    try:
        tty.setcbreak(here)
        yield pressed
    finally:
        termios.tcsetattr(here, termios.TCSADRAIN, before)


def frame(seen: Seen, *, now: datetime, height: int) -> Group:
    """The frame, `height` lines at most."""
    overview, resource = seen.overview, main_resource(seen.queues)
    attention = overview["attention"][:_MOST_ATTENTION]
    room = max(1, height - _AROUND - len(attention))
    rows = [*tree_rows(seen.queues, resource, None, now)]
    counts = [f"{overview['counts'][state]} {state}" for state in _STATES if overview["counts"].get(state)]
    capacity = overview["capacity"]
    parts: list[Any] = [_head(seen, now), Text("Jobs    " + (", ".join(counts) or "none"))]
    for row in [row for row in capacity if row["resource"] == resource] or capacity[:1]:
        used, free = (readable(row[key], resource=row["resource"]) for key in ("used", "free"))
        parts.append(
            Text(f"Room    {used} used, {free} free of {amount_text(row['allocatable'], row['resource'])}")
        )
    parts.append(Text())
    parts += [Text(f"! {styled(item['text']).plain}", style="yellow") for item in attention]
    parts.append(table(_COLUMNS, rows[:room]))
    if more := len(rows[room:]):
        parts.append(Text(f"… {more} more queues: queuer queue tree"))
    parts.append(Text("q quits", style="dim"))
    if seen.stale:
        for part in parts[1:]:
            part.style = "dim"
    return Group(*parts)


def _head(seen: Seen, now: datetime) -> Text:
    overview = seen.overview
    text = Text(f"Queuer  {styled(overview['controller']['text']).plain}", style="bold")
    leader, kept = overview["controller"], overview["cycle"]
    if last := decided(leader["cycle"], leader["cycleAgeSeconds"], kept and kept["id"]):
        text.append(f"  {last}", style="not bold")
    if seen.stale:
        stale = f"  STALE: as of {ago(overview['asOf'], now)} ago: {styled(seen.stale).plain}"
        text.append(stale, style="bold red")
    return text

"""`queuer top`: the cluster at a glance, live in the terminal. It polls; `q` and Ctrl-C leave a clean terminal.

Answers are fetched beside the loop that reads keys, so that a server that hangs delays nobody who wants to leave.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from queuer.cli.client import Client, CommandFailed
from queuer.cli.frames import frame
from queuer.cli.output import console, say

LEAST_SECONDS = 2.0
_BLINK = 0.25
_PIPED = 10_000


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
            console().print(_frame(first, height=_PIPED))
            return
        try:
            _live(Feed(client, first, every=every))
        except KeyboardInterrupt:
            say("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The last answers; `stale`: why there is no newer one, "" where they are new."""

    overview: Any
    queues: Any
    stale: str = ""

    @classmethod
    def of(cls, client: Client) -> Seen:
        """What the API says now. Raises CommandFailed."""
        return cls(overview=client.get("/overview"), queues=client.get("/queues")["items"])


class Feed:
    """Fetches in a thread of its own until `close`; `seen` is always the newest."""

    def __init__(self, client: Client, first: Seen, *, every: float) -> None:
        self.seen = first
        self._client, self._every = client, every
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="feed")

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def close(self) -> None:
        """Fetch no more; an answer that is under way is not waited for."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(self._every):
            try:
                self.seen = Seen.of(self._client)
            except CommandFailed as error:
                old = self.seen
                self.seen = Seen(overview=old.overview, queues=old.queues, stale=error.message)
            except Exception:
                if self._closing.is_set():
                    return  # the session was closed under an answer
                raise


def _live(feed: Feed) -> None:
    screen = Console(highlight=False, markup=False, emoji=False)
    feed.start()
    try:
        with keys() as pressed, Live(console=screen, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_frame(feed.seen, height=screen.height), refresh=True)
                if pressed() in ("q", "Q"):
                    return
    finally:
        feed.close()


def _frame(seen: Seen, *, height: int) -> Group | Text:
    return frame(seen.overview, seen.queues, now=datetime.now(tz=UTC), stale=seen.stale, height=height)


def _no_key() -> str:
    time.sleep(_BLINK)
    return ""


@contextmanager
def keys() -> Iterator[Callable[[], str]]:
    """A function that waits a moment for a key and returns it, "" for none. The terminal is put back at the end."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    here = sys.stdin.fileno()
    before = termios.tcgetattr(here)

    def pressed() -> str:
        ready, _, _ = select.select([here], [], [], _BLINK)
        return os.read(here, 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(here)
        yield pressed
    finally:
        termios.tcsetattr(here, termios.TCSADRAIN, before)

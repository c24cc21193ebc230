"""Says what a long start is doing: a bar on a terminal, plain lines elsewhere, nothing on stdout."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

PLAIN_INTERVAL_SECONDS = 10.0

Advance = Callable[[], None]


class Reporter:
    """Writes the steps of a start to `stream` (default: stderr)."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._console = Console(file=stream or sys.stderr, quiet=quiet, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Write one line."""
        self._console.print(text, markup=False)

    @contextmanager
    def phase(self, name: str, *, total: int | None = None) -> Iterator[Advance]:
        """A step with a length: yields the function to call per unit done; at its end says the seconds."""
        began = time.monotonic()
        show = self._bar if self._console.is_terminal else self._lines
        with show(name, total) as advance:
            yield advance
        self.say(f"{name}: {time.monotonic() - began:.1f} s")

    @contextmanager
    def _bar(self, name: str, total: int | None) -> Iterator[Advance]:
        text = TextColumn("{task.description}")
        columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(name, total=total)
            yield lambda: progress.advance(task)

    @contextmanager
    def _lines(self, name: str, total: int | None) -> Iterator[Advance]:
        """A line at the start and one each ten seconds, so that a log shows that it moves."""
        self.say(f"{name} …")
        began, done, finished = time.monotonic(), 0, threading.Event()

        def advance() -> None:
            nonlocal done
            done += 1

        def tell() -> None:
            while not finished.wait(PLAIN_INTERVAL_SECONDS):
                amount = f"{done} of {total}" if total else str(done)
                self.say(f"{name}: {amount} after {time.monotonic() - began:.0f} s")

        teller = threading.Thread(target=tell, name=f"progress of {name}")
        teller.start()
        try:
            yield advance
        finally:
            finished.set()
            teller.join()

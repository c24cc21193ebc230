"""Runs `queuer` with a wall clock that a test can put forward and back, as NTP or an administrator does.

    QUEUER_TEST_CLOCK=FILE python -m tests.chaos.clock serve controller

The file holds the seconds by which `time.time()` is ahead. The monotonic clock goes on as it is. A nursery's forks
(`tests.e2e.nursery`) have this clock, too; without the variable it is the real one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

FILE = "QUEUER_TEST_CLOCK"
"""Environment variable that names the file."""


def put(file: Path, ahead: float) -> None:
    """Put the clock of those who read `file` this many seconds ahead of the real one, at once."""
    written = file.with_suffix(".new")
    written.write_text(str(ahead))
    written.rename(file)


def install() -> None:
    """Have `time.time()` follow the file that the environment names; without one it is the real time."""
    real = time.time

    def stepped() -> float:
        file = os.environ.get(FILE)
        try:
            return real() + float(Path(file).read_text()) if file else real()
        except FileNotFoundError:
            return real()

    time.time = stepped


if __name__ == "__main__":
    install()
    from queuer.cli.main import run  # its modules take the clock as they are imported

    run()

"""Looks again every two seconds: what `-w` shows and what `queuer wait` waits for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from queuer.cli.client import CommandFailed, Exit
from queuer.cli.output import Format, Printer

PAUSE = 2.0
"""Seconds between two looks."""


def looks() -> Iterator[None]:
    """One after each pause, without end. What was printed is seen meanwhile, in a pipe too."""
    while True:
        sys.stdout.flush()
        time.sleep(PAUSE)
        yield


def refuse_documents(out: Printer) -> None:
    """Raise CommandFailed for formats that are one document: what is watched has no end."""
    if out.form in (Format.JSON, Format.YAML):
        raise CommandFailed(
            f"-w has no end, -o {out.form} is one document", hint="-w -o jsonl", exit_code=Exit.USAGE
        )

"""How verbs print: tables for people, JSON and YAML for programs; data on stdout, everything else on stderr.

Colour only on a terminal and never with NO_COLOR (rich sees to both). Text that comes from users is stripped
of control characters, so that a job cannot write to the reader's terminal.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 10_000
STYLES = {
    "CHANGE": "bold red",
    "ESCALATE": "bold red",
    "WAIT": "yellow",
    "HELD": "cyan",
    "Running": "green",
    "Succeeded": "green",
    "Failed": "red",
    "Evicting": "magenta",
}


class Format(StrEnum):
    """`-o`: JSON and YAML are the REST answer as it is; tables are not an interface."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def clean(text: object) -> str:
    """`text` without control and format characters; line breaks become spaces."""
    return "".join(
        " " if c in "\n\t" else c for c in str(text) if c in "\n\t" or unicodedata.category(c)[0] != "C"
    )


def console() -> Console:
    """Stdout. Piped output is never cut to a width."""
    return Console(
        width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, markup=False, emoji=False
    )


def print_table(view: Table) -> None:
    """Print a table, without the blanks that fill its last column."""
    screen = console()
    with screen.capture() as captured:
        screen.print(view)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def say(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    sys.stderr.write(clean(text) + "\n")


def emit(data: Any, form: Format) -> None:
    """Print the REST answer itself."""
    if form is Format.YAML:
        import yaml  # not needed by the other formats

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=False))
    else:
        sys.stdout.write(json.dumps(data, indent=2) + "\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> Table:
    """A table without lines. Columns named in `right` are right-aligned; the last one may wrap."""
    view = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        last = index == len(columns) - 1
        view.add_column(name, justify="right" if name in right else "left", no_wrap=not last, overflow="fold")
    for row in rows:
        view.add_row(*(cell if isinstance(cell, Text) else styled(cell) for cell in row))
    return view


def styled(value: object) -> Text:
    """A cell; verdicts and states get their colour, beside the word and never instead of it."""
    text = clean("-" if value is None else value)
    return Text(text, style=STYLES.get(text, ""))


def age(seconds: float) -> str:
    """`9s`, `4m`, `3h`, `2d`: one unit, rounded down."""
    seconds = max(0.0, seconds)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"

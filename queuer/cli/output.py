"""How verbs print: `-o`, `--no-headers` and `--color` are read and obeyed here, for every verb alike.

Data goes to stdout, everything else to stderr. JSON and YAML are the REST answer; tables are for people. Text that
comes from users is stripped of control characters, so that a job cannot write to the reader's terminal.
"""

from __future__ import annotations

import csv
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuer.cli.client import CommandFailed, Exit
from queuer.domain.fields import nearest

if TYPE_CHECKING:  # imported where something is printed for people: completion and JSON do without
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
    """`-o`: JSON and YAML are the REST answer as it is; `jsonl` and `csv` its entries, one a line."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"
    JSONL = "jsonl"

    @property
    def for_people(self) -> bool:
        """Whether it is a table, and no interface."""
        return self in (Format.TABLE, Format.WIDE)


class Color(StrEnum):
    """`--color`: auto is on a terminal, and never with NO_COLOR."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def _format(text: str) -> Format:
    """What `-o` names. Raises BadParameter with what to write instead."""
    try:
        return Format(text)
    except ValueError:
        word = text.partition("=")[0]
        if word in ("jsonpath", "go-template", "custom-columns"):
            hint = f"{word} is not built in: -o json | jq ..., or -o csv"
        else:
            hint = nearest(text, Format)
        raise typer.BadParameter(f"{text!r} is no format; {hint}") from None


Output = Annotated[
    Format,
    typer.Option(
        "-o",
        "--output",
        parser=_format,
        metavar="FORMAT",
        autocompletion=lambda: list(Format),
        help=f"How to print: {', '.join(Format)}.",
    ),
]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Tables and CSV without their first line.")]
ColorWhen = Annotated[Color, typer.Option("--color", help="When to colour.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a list. `wide`: only in wide tables and in CSV; `exact`: what CSV has instead, by its own title."""

    title: str
    of: Callable[[Any], object]
    right: bool = False
    wide: bool = False
    exact: tuple[str, Callable[[Any], object]] | None = None

    @property
    def in_csv(self) -> tuple[str, Callable[[Any], object]]:
        """Title and value where a program reads it."""
        return self.exact or (self.title.lower(), self.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How entries of a list are shown. `name`: what other verbs call one; `items`: where the answer has them."""

    columns: Sequence[Column]
    name: Callable[[Any], str]
    items: str = "items"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """What the person at the terminal wants to see, and how."""

    form: Format = Format.TABLE
    headers: bool = True
    color: Color = Color.AUTO

    @property
    def for_people(self) -> bool:
        """Whether to print tables and sentences."""
        return self.form.for_people

    def listing(self, answer: Any, view: View, *, nothing: str = "nothing to show") -> None:
        """Print a list in any format. `nothing`: what a person is told of an empty one."""
        rows = answer[view.items]
        if self.for_people and not rows:
            say(nothing)
        elif self.form in (Format.JSON, Format.YAML):
            emit(answer, self.form)
        else:
            self.entries(view, rows)

    def answer(self, answer: Any, *, names: Iterable[str]) -> None:
        """Print one REST answer. Raises CommandFailed where the format is for lists alone."""
        self.check_single()
        if self.form is Format.NAME:
            _lines(map(clean, names))
        elif self.form is Format.JSONL:
            _lines([json.dumps(answer)])
        else:
            emit(answer, self.form)

    def check_single(self) -> None:
        """Raise CommandFailed where what is no list cannot be shown: a verb that changes something asks first."""
        if self.form is Format.CSV:
            raise CommandFailed(
                "this is no list: -o csv cannot show it", hint="-o json", exit_code=Exit.USAGE
            )

    def entries(self, view: View, rows: Sequence[Any], *, headers: bool = True) -> None:
        """Print entries of a list in a format that can go on: `headers` False where some were printed before."""
        headers = headers and self.headers
        if self.form is Format.CSV:
            _csv(view.columns, rows, headers=headers)
        elif self.form is Format.JSONL:
            _lines(json.dumps(row) for row in rows)
        elif self.form is Format.NAME:
            _lines(clean(view.name(row)) for row in rows)
        elif rows:
            shown = [column for column in view.columns if self.form is Format.WIDE or not column.wide]
            cells = [[column.of(row) for column in shown] for row in rows]
            right = [column.title for column in shown if column.right]
            self.table([column.title for column in shown], cells, right=right, headers=headers)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Sequence[str] = (),
        headers: bool = True,
    ) -> None:
        """Print a table that is no list of the answer's entries."""
        shown = table(columns, rows, right=right, headers=headers and self.headers)
        print_table(shown, console(self.color))

    def line(self, text: str | Text) -> None:
        """Print a line; a terminal may wrap it."""
        console(self.color).print(styled(text) if isinstance(text, str) else text, soft_wrap=True)


def printed(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb that takes a `Printer` as `out`, as one with the options that make the Printer."""

    @wraps(verb)
    def run(*, output: Format, no_headers: bool, color: Color, **arguments: Any) -> None:
        verb(out=Printer(form=output, headers=not no_headers, color=color), **arguments)

    own = signature(verb, eval_str=True)
    given = own.parameters["out"].default
    form = Format.TABLE if given is Parameter.empty else given.form
    options = (("output", Output, form), ("no_headers", NoHeaders, False), ("color", ColorWhen, Color.AUTO))
    parameters = [p for p in own.parameters.values() if p.name != "out"] + [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in options
    ]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


# What printing is made of


def clean(text: object) -> str:
    """`text` without control and format characters; line breaks become spaces."""
    return "".join(
        " " if c in "\n\t" else c for c in str(text) if c in "\n\t" or unicodedata.category(c)[0] != "C"
    )


def console(color: Color = Color.AUTO) -> Console:
    """Stdout. Piped output is never cut to a width."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    if color is Color.AUTO:
        return Console(width=width, highlight=False, markup=False, emoji=False)
    always = color is Color.ALWAYS
    return Console(
        width=width, highlight=False, markup=False, emoji=False,
        color_system="standard" if always else None, force_terminal=always, no_color=not always,
    )  # fmt: skip


def print_table(view: Table, screen: Console | None = None) -> None:
    """Print a table, without the blanks that fill its last column."""
    screen = screen or console()
    with screen.capture() as captured:
        screen.print(view)
    _lines(line.rstrip() for line in captured.get().splitlines())


def say(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    sys.stderr.write(clean(text) + "\n")


def emit(data: Any, form: Format) -> None:
    """Print the REST answer itself. Raises CommandFailed for a format that is no document."""
    if form not in (Format.JSON, Format.YAML):
        raise CommandFailed(f"-o {form} is for lists", hint="use -o json", exit_code=Exit.USAGE)
    if form is Format.YAML:
        import yaml  # not needed by the other formats

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=False))
    else:
        sys.stdout.write(json.dumps(data, indent=2) + "\n")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    headers: bool = True,
) -> Table:
    """A table without lines. Columns named in `right` are right-aligned; the last one may wrap."""
    from rich.table import Table
    from rich.text import Text

    view = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=headers)
    for index, name in enumerate(columns):
        last = index == len(columns) - 1
        view.add_column(name, justify="right" if name in right else "left", no_wrap=not last, overflow="fold")
    for row in rows:
        view.add_row(*(cell if isinstance(cell, Text) else styled(cell) for cell in row))
    return view


def styled(value: object) -> Text:
    """A cell; verdicts and states get their colour, beside the word and never instead of it."""
    from rich.text import Text

    text = clean("-" if value is None else value)
    return Text(text, style=STYLES.get(text, ""))


def age(seconds: float) -> str:
    """`9s`, `4m`, `3h`, `2d`: one unit, rounded down."""
    seconds = max(0.0, seconds)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def duration(seconds: int) -> str:
    """`1h2m5s`: exact, without units that are nought."""
    minutes, hours = seconds // 60, seconds // 3600
    parts = ((hours // 24, "d"), (hours % 24, "h"), (minutes % 60, "m"), (seconds % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def written(value: object) -> str:
    """A value of an answer as people write it: lists by blank, mappings as `(key value)`."""
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {written(each)}" for key, each in value.items()) + ")"
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _csv(columns: Sequence[Column], rows: Iterable[Any], *, headers: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    titles, ways = zip(*(column.in_csv for column in columns), strict=True)
    if headers:
        writer.writerow(titles)
    for row in rows:
        values = (of(row) for of in ways)
        writer.writerow("" if value is None else clean(value) for value in values)


def _lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)

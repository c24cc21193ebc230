"""Prints the answers of all verbs: `-o`, `--no-headers` and `--color` are read and obeyed here alone.

A verb states a list once, as columns with a title and a key; every format is made from that.

Data goes to stdout, everything else to stderr. JSON and YAML are the REST answer; tables are for people. Text that
comes from users is stripped of control characters, so that a job cannot write to the reader's terminal.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuer.cli.failures import Misused
from queuer.domain.fields import nearest
from queuer.domain.quantity import age as age
from queuer.domain.quantity import devices, readable

if TYPE_CHECKING:  # imported where something is printed for people: completion and JSON do without
    from rich.console import Console, JustifyMethod
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


class Color(StrEnum):
    """`--color`: auto is on a terminal, and never with NO_COLOR."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def _format(text: str) -> Format:
    """The format that `-o` names. Raises BadParameter with the format to write instead."""
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


Key = str | Callable[[Any], object]
"""A value of an entry: the name of its field, `a.b` for one inside another, or a function of the entry."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list: its title and its value. `wide`: only in wide tables and in CSV.

    `exact` names the field that CSV has instead, under the field's own name.
    """

    title: str
    key: Key
    right: bool = False
    wide: bool = False
    exact: str = ""


def amount_column(key: str, *, title: str = "") -> Column:
    """Amounts of the resource that an entry names, as people read them."""

    def text(entry: Any) -> str | None:
        return None if entry[key] is None else readable(entry[key], resource=entry["resource"])

    return Column(title or key.upper(), text, right=True, exact=key)


def asked(amounts: Mapping[str, str]) -> str | None:
    """What jobs ask for, as a cell; None where nothing of it can be read."""
    return devices(amounts) or None


@dataclass(frozen=True, slots=True)
class View:
    """How entries of a list are shown. `name`: the name of one for other verbs; `items`: the answer's field."""

    columns: Sequence[Column]
    name: Key
    items: str = "items"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """Prints as the person at the terminal asked by `-o`, `--no-headers` and `--color`."""

    form: Format = Format.TABLE
    headers: bool = True
    color: Color = Color.AUTO

    @property
    def for_people(self) -> bool:
        """Whether to print tables and sentences."""
        return self.form in (Format.TABLE, Format.WIDE)

    def listing(self, answer: Any, view: View, *, nothing: str = "nothing to show") -> None:
        """Print a list in any format. `nothing`: the line for people where it is empty."""
        rows = answer[view.items]
        if self.for_people and not rows:
            say(nothing)
        elif self.form in (Format.JSON, Format.YAML):
            self._document(answer)
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
            self._document(answer)

    def answered(self, answer: Any, *, names: Iterable[str]) -> bool:
        """Print one REST answer if a program is to read it; False = the verb tells people in its own words."""
        if not self.for_people:
            self.answer(answer, names=names)
        return not self.for_people

    def _document(self, answer: Any) -> None:
        if self.form is Format.YAML:
            import yaml  # not needed by the other formats

            sys.stdout.write(yaml.safe_dump(answer, sort_keys=False, allow_unicode=False))
        else:
            sys.stdout.write(json.dumps(answer, indent=2) + "\n")

    def check_single(self) -> None:
        """Raise CommandFailed where only a list can be shown so. A verb that changes something asks first."""
        if self.form is Format.CSV:
            raise Misused("this is no list: -o csv cannot show it", hint="say -o json")

    def entries(self, view: View, rows: Sequence[Any], *, headers: bool = True) -> None:
        """Print entries of a list in a format that can go on. `headers` is False after the first ones."""
        headers = headers and self.headers
        if self.form is Format.CSV:
            _csv(view.columns, rows, headers=headers)
        elif self.form is Format.JSONL:
            _lines(json.dumps(row) for row in rows)
        elif self.form is Format.NAME:
            _lines(clean(value(row, view.name)) for row in rows)
        elif rows:
            columns = [column for column in view.columns if self.form is Format.WIDE or not column.wide]
            self._table(columns, rows, headers=headers)

    def table(self, columns: Sequence[Column], rows: Iterable[Any]) -> None:
        """Print a table for people that is no list of the answer's entries."""
        self._table(columns, rows, headers=self.headers)

    def _table(self, columns: Sequence[Column], rows: Iterable[Any], *, headers: bool) -> None:
        """Print a table, without the blanks that fill its last column."""
        screen = console(self.color)
        with screen.capture() as captured:
            screen.print(table(columns, rows, headers=headers))
        _lines(line.rstrip() for line in captured.get().splitlines())

    def line(self, text: str | Text, *, indent: int | None = None) -> None:
        """Print a line. `indent`: words are wrapped to that column; None: the terminal wraps, and it can be copied."""
        screen, line = console(self.color), styled(text) if isinstance(text, str) else text
        if indent is None:
            screen.print(line, soft_wrap=True)
            return
        room = max(indent, screen.width - indent)
        for number, part in enumerate(line[indent:].wrap(screen, room)):
            part.rstrip()
            screen.print((line[:indent] if number == 0 else styled(" " * indent)) + part, soft_wrap=True)


_OPTIONS = (
    ("output", Output, Format.TABLE),
    ("no_headers", NoHeaders, False),
    ("color", ColorWhen, Color.AUTO),
)


def printed(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb that takes a `Printer` as `out`, as one with the options that make the Printer."""

    @wraps(verb)
    def run(*, output: Format, no_headers: bool, color: Color, **arguments: Any) -> None:
        verb(out=Printer(form=output, headers=not no_headers, color=color), **arguments)

    own = signature(verb, eval_str=True)
    out = own.parameters["out"].default
    given = {} if out is Parameter.empty else {"output": out.form}
    parameters = [p for p in own.parameters.values() if p.name != "out"] + [
        Parameter(name, Parameter.KEYWORD_ONLY, default=given.get(name, default), annotation=annotation)
        for name, annotation, default in _OPTIONS
    ]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


# Parts of a line


def clean(text: object) -> str:
    """`text` without control and format characters; line breaks become spaces."""
    return "".join(
        " " if c in "\n\t" else c for c in str(text) if c in "\n\t" or unicodedata.category(c)[0] != "C"
    )


def local(text: str) -> str:
    """A sentence whose moments, such as `2026-11-24 18:43:07 UTC`, are in the reader's zone: today `19:43:07 CET`."""
    return _MOMENT.sub(_local, text)


_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\b")


def _local(found: re.Match[str]) -> str:
    try:
        at = moment(found[0].replace(" UTC", "Z")).astimezone()
    except (ValueError, OverflowError):  # a quoted text may name a day that no calendar has
        return found[0]
    day = "" if at.date() == datetime.now(at.tzinfo).date() else f"{at:%Y-%m-%d} "
    return f"{day}{at:%H:%M:%S %Z}"


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


def say(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    sys.stderr.write(local(clean(text)) + "\n")


def value(entry: Any, key: Key) -> Any:
    """The value of an entry under a key; None where the entry has no such part."""
    if not isinstance(key, str):
        return key(entry)
    for part in key.split("."):
        entry = None if entry is None else entry.get(part)
    return entry


def table(columns: Sequence[Column], rows: Iterable[Any], *, headers: bool = True) -> Table:
    """A table without lines. The last column may wrap."""
    from rich.table import Table
    from rich.text import Text

    view = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=headers)
    for column in columns:
        justify: JustifyMethod = "right" if column.right else "left"
        last = column is columns[-1]
        view.add_column(column.title, justify=justify, no_wrap=not last, overflow="fold")
    for row in rows:
        cells = (value(row, column.key) for column in columns)
        view.add_row(*(cell if isinstance(cell, Text) else styled(cell) for cell in cells))
    return view


def styled(value: object) -> Text:
    """A cell; verdicts and states get their colour, beside the word and never instead of it."""
    from rich.text import Text

    text = local(clean("-" if value is None else value))
    return Text(text, style=STYLES.get(text, ""))


def moment(text: str) -> datetime:
    """A time of the REST API."""
    return datetime.fromisoformat(text)


def clock(text: str) -> str:
    """A time of the REST API as the reader's clock shows it, with its date on another day."""
    at = moment(text).astimezone()
    return f"{at:%H:%M}" if at.date() == datetime.now(at.tzinfo).date() else f"{at:%Y-%m-%d %H:%M}"


def ago(text: str, now: datetime) -> str:
    """The age of a time of the REST API."""
    return age((now - moment(text)).total_seconds())


def decided(cycle: int | None, seconds: float | None, kept: int | None) -> str:
    """The last decision, and the newest on record where that is an older one; "" before the first."""
    if cycle is None or seconds is None:
        return ""
    older = "" if kept in (None, cycle) else f" (on record: {kept})"
    return f"cycle {cycle}, {age(seconds)} ago{older}"


def written(value: object) -> str:
    """A value of an answer as people write it: lists by blank, mappings as `(key value)`."""
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {written(each)}" for key, each in value.items()) + ")"
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _csv(columns: Sequence[Column], rows: Iterable[Any], *, headers: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if headers:
        writer.writerow(column.exact.rpartition(".")[2] or column.title.lower() for column in columns)
    for row in rows:
        values = (value(row, column.exact or column.key) for column in columns)
        writer.writerow("" if each is None else clean(each) for each in values)


def _lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)

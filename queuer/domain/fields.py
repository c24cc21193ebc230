"""Reading plain documents (from YAML, JSON, CRs) field by field, collecting every problem instead of the first.

A `Reader` walks a mapping. It notes each fault with the field's path and the nearest right name, and the caller
raises once at the end. A `FieldTable` says once how the fields of a record are spelled, read and shown.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from heapq import nsmallest
from itertools import takewhile
from typing import Any, Generic, TypeVar

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.quantity import MAX_AMOUNT

LISTED = 20
"""How many names are listed in full."""
NEAREST = 3
"""How many of more than that are named."""
E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
LONGEST = 100 * 365 * 86400.0
"""Seconds. A longer duration leads to moments that no calendar has."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(value: object, *, field: str) -> float:
    """Seconds of `"300s"`, `"5m"`, `"1h30m"`, `"2d"`, `LONGEST` at most. Raises InvalidInput naming `field`."""
    parts = _DURATION.findall(value) if isinstance(value, str) else []
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise InvalidInput.at(
            field, f"{value!r} is not a duration", hint='write e.g. "300s", "5m" or "1h30m"'
        )
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > LONGEST:
        raise InvalidInput.at(
            field, f"{str(value)[:40]!r} is over 100 years", "leave it out where there is no bound"
        )
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest exact duration: 5400 → `90m`, 1.5 → `1500ms`. Finer than a millisecond is rounded."""
    milliseconds = round(seconds * 1000)
    for unit in ("d", "h", "m", "s"):
        size = int(_UNITS[unit]) * 1000
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean x?` for a name that is mistyped, or lacks what is before its slash. Else what there is: of many the
    three that begin most alike.
    """
    choices = sorted(known)
    whole = [choice for choice in choices if choice.endswith(f"/{name}")]
    close = whole or difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    if len(choices) <= LISTED:
        return f"known: {', '.join(choices)}"
    first = nsmallest(NEAREST, choices, key=lambda choice: -_alike(name, choice))
    return f"nearest of {len(choices)}: {', '.join(first)}"


def _alike(left: str, right: str) -> int:
    """With how many equal letters both begin."""
    return sum(takewhile(bool, (a == b for a, b in zip(left, right, strict=False))))


def twice(texts: Iterable[str]) -> list[str]:
    """Those that are there more than once, in their order."""
    return [text for text, times in Counter(texts).items() if times > 1]


@dataclass(slots=True)
class Problems:
    """The faults so far."""

    found: list[FieldProblem] = field(default_factory=list)

    def note(self, field: str, message: str, hint: str = "") -> None:
        self.found.append(FieldProblem(field=field, message=message, hint=hint))

    def attempt(self, parse: Callable[[], Any], otherwise: Any = None) -> Any:
        """The result of `parse`, or `otherwise` after noting the InvalidInput that it raised."""
        try:
            return parse()
        except InvalidInput as error:
            self.found.extend(error.problems)
            return otherwise

    def settle(self) -> None:
        """Raise InvalidInput if anything was noted."""
        if self.found:
            raise InvalidInput(*self.found)


class Reader:
    """One mapping of a document. `at` is its path; unknown keys are noted on creation."""

    def __init__(self, value: object, *, at: str, known: Iterable[str], problems: Problems) -> None:
        self.at = at
        self.problems = problems
        self.values: Mapping[str, Any] = {}
        self.readable = isinstance(value, Mapping)
        if not isinstance(value, Mapping):
            problems.note(at or "document", f"a mapping is needed, got {kind_of(value)}")
            return
        names = tuple(known)
        for key in value:
            if key not in names:
                problems.note(self.path(str(key) or '""'), "unknown field", nearest(str(key), names))
        self.values = value

    def path(self, key: str) -> str:
        """Full path of a field of this mapping."""
        return f"{self.at}.{key}" if self.at else key

    def said(self, key: str) -> bool:
        """Whether the field is there with a value; null counts as absent."""
        return self.values.get(key) is not None

    def need(self, key: str) -> bool:
        """Like `said`, but absence is a problem (once: a value that is no mapping was noted already)."""
        if self.readable and not self.said(key):
            self.problems.note(self.path(key), "is missing")
        return self.said(key)

    def text(self, key: str, default: str | None = None) -> str | None:
        """A non-empty text."""
        value = self._accepted(key, "a text", lambda v: isinstance(v, str) and bool(v))
        return default if value is None else str(value)

    def flag(self, key: str) -> bool | None:
        """true or false; a text is not taken for one."""
        value = self._accepted(key, "true or false", lambda v: isinstance(v, bool))
        return None if value is None else bool(value)

    def whole(self, key: str, *, least: int = 0) -> int | None:
        """A whole number that a decision takes."""
        name = f"a whole number from {least} to 2^62"
        value = self._accepted(key, name, lambda v: _whole(v) and least <= v <= MAX_AMOUNT)
        return None if value is None else int(value)

    def number(self, key: str) -> float | None:
        """A number that a decision takes."""
        name = "a number up to 2^62"
        value = self._accepted(
            key, name, lambda v: (_whole(v) or isinstance(v, float)) and abs(v) <= MAX_AMOUNT
        )
        return None if value is None else float(value)

    def duration(self, key: str) -> float | None:
        """Seconds of a duration text."""
        if not self.said(key):
            return None
        found: float | None = self.problems.attempt(
            lambda: parse_duration(self.values[key], field=self.path(key))
        )
        return found

    def word(self, key: str, words: type[E]) -> E | None:
        """A member of an enumeration by its value."""
        found = self.one_of(key, words)
        return None if found is None else words(found)

    def one_of(self, key: str, words: Iterable[str]) -> str | None:
        """One of these words."""
        if not self.said(key):
            return None
        value, known = self.values[key], tuple(words)
        if value in known:
            return str(value)
        self.problems.note(self.path(key), f"{value!r} is not one of the words", nearest(str(value), known))
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of non-empty texts; absent = ()."""
        found = []
        for index, item in enumerate(self.items(key)):
            if isinstance(item, str) and item:
                found.append(item)
            else:
                self.problems.note(f"{self.path(key)}[{index}]", f"a text is needed, got {kind_of(item)}")
        return tuple(found)

    def labels(self, key: str) -> dict[str, str]:
        """A mapping of text to text; absent = {}."""
        value = self.values.get(key) or {}
        if not isinstance(value, Mapping):
            self.problems.note(self.path(key), f"a mapping is needed, got {kind_of(value)}")
            return {}
        for name, item in value.items():
            if not isinstance(name, str) or not isinstance(item, str):
                self.problems.note(
                    f"{self.path(key)}.{name}", f"a text is needed, got {kind_of(item)}", "put it in quotes"
                )
        return {name: item for name, item in value.items() if isinstance(name, str) and isinstance(item, str)}

    def items(self, key: str) -> tuple[Any, ...]:
        """A list of anything; absent = ()."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self.problems.note(self.path(key), f"a list is needed, got {kind_of(value)}")
            return ()
        return tuple(value)

    def _accepted(self, key: str, name: str, accept: Callable[[Any], bool]) -> Any:
        """The value if it is there and accepted, else None, noted where it is there."""
        if not self.said(key) or accept(self.values[key]):
            return self.values.get(key)
        self.problems.note(self.path(key), f"{name} is needed, got {self.values[key]!r}")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record, as documents spell it.

    `read` gets a Reader and the name, notes what is wrong, and answers None for the record's default. `show` is its
    inverse.
    """

    name: str
    read: Callable[[Reader, str], Any]
    show: Callable[[Any], Any] = lambda value: value

    @property
    def attribute(self) -> str:
        """The name in the record: `minRuntime` is `min_runtime` there."""
        return re.sub(r"[A-Z]", lambda capital: f"_{capital[0].lower()}", self.name)


class FieldTable(Generic[T]):
    """All fields of a kind of record: reads a mapping into a record, and shows a record as a mapping."""

    def __init__(self, record: type[T], *rows: Field) -> None:
        self._record, self._rows = record, rows
        self.names = tuple(row.name for row in rows)
        self._defaults = {
            each.name: each.default if each.default_factory is MISSING else each.default_factory()
            for each in fields(record)  # type: ignore[arg-type]
        }

    def read(self, reader: Reader, **given: Any) -> T:
        """The record of a mapping that is being read; `given`: attributes that it does not say."""
        found = {row.attribute: row.read(reader, row.name) for row in self._rows}
        return self._record(**given, **{name: value for name, value in found.items() if value is not None})

    def parse(self, body: object, *, at: str, problems: Problems | None = None) -> T:
        """A record from plain data; null = all defaults. Without `problems`, raises InvalidInput itself."""
        noted = Problems() if problems is None else problems
        record = self.read(Reader(body if body is not None else {}, at=at, known=self.names, problems=noted))
        if problems is None:
            noted.settle()
        return record

    def show(self, record: T) -> dict[str, Any]:
        """The fields that differ from the defaults, as plain data; `parse` gives back an equal record."""
        found = ((row, getattr(record, row.attribute)) for row in self._rows)
        return {row.name: row.show(value) for row, value in found if value != self._defaults[row.attribute]}

    def inside(self, name: str) -> Field:
        """A field of another record that holds such a record."""

        def read(reader: Reader, key: str) -> T:
            return self.parse(reader.values.get(key), at=reader.path(key), problems=reader.problems)

        return Field(name=name, read=read, show=self.show)


def word_field(name: str, words: type[StrEnum]) -> Field:
    """A member of an enumeration, by its value."""
    return Field(name=name, read=lambda reader, key: reader.word(key, words), show=str)


def whole_field(name: str, *, least: int = 0) -> Field:
    """A whole number."""
    return Field(name=name, read=lambda reader, key: reader.whole(key, least=least))


def duration_field(name: str) -> Field:
    """Seconds, spelled as a duration."""
    return Field(name=name, read=Reader.duration, show=format_duration)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def kind_of(value: object) -> str:
    """The kind of a document's value, in words for people."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return (
        "a number"
        if isinstance(value, int | float)
        else "a text"
        if isinstance(value, str)
        else type(value).__name__
    )

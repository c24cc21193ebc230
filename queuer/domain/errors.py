"""One exception root with stable codes, so that REST, CLI and logs name the same fault the same way:

QueuerError
├── InvalidInput        something given from outside is wrong: the field, what was got, the fix
├── NotFound            a named thing does not exist; carries the nearest existing names
├── Conflict            a stale revision, or another writer owns the object
└── Unavailable         a part that is needed does not answer
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

_PLACE = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")


class QueuerError(Exception):
    """Root of all errors that are meant to be read by people. `code` is stable and machine-readable."""

    code = "queuer_error"
    problems: tuple[FieldProblem, ...] = ()
    """By field, where it is about some."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """The fault of one field of an input, and the fix.

    `field` is a dotted path into the document, e.g. `queues.root.research.quota[0].limit`; `pointer` the same as a JSON
    pointer (RFC 6901), where the document is at hand: the names of queues have dots of their own. `legal`: a value that
    mends it, "" = the field is to be taken off; None = it is not known. `instead`: the field that was meant, and its
    value.
    """

    field: str
    message: str
    hint: str = ""
    pointer: str = ""
    legal: str | None = None
    instead: tuple[str, str] | None = None

    def __str__(self) -> str:
        text = f"{self.field}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


class InvalidInput(QueuerError):
    """One or more fields of an input are wrong. Nothing of the input was taken over."""

    code = "invalid_input"

    def __init__(self, *problems: FieldProblem) -> None:
        super().__init__("; ".join(str(p) for p in problems))
        self.problems = problems

    @classmethod
    def at(cls, field: str, message: str, hint: str = "", *, pointer: str = "") -> Self:
        """The error of one wrong field."""
        return cls(FieldProblem(field=field, message=message, hint=hint, pointer=pointer))


class NotFound(QueuerError):
    """A named thing does not exist."""

    code = "not_found"


class Conflict(QueuerError):
    """The write is not applicable to the present state: stale revision, other writer. `uids`: workloads it is about."""

    code = "conflict"

    def __init__(self, message: str, *, hint: str = "", uids: Iterable[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.uids = frozenset(uids)


class Unavailable(QueuerError):
    """A needed part (database, API server, solver process, tool) is missing or does not answer."""

    code = "unavailable"


def located(error: Exception) -> tuple[str, str]:
    """The path in an error of msgspec, such as `.queues[0].weight`, and its message without it.

    The path is empty where msgspec names none, and `[...]` stands for a key of a mapping.
    """
    found = _PLACE.search(str(error))
    return (found["path"] if found else "", _PLACE.sub("", str(error)))

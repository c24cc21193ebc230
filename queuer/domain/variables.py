"""Settings from the environment: a row for each variable, from which it is read, checked and documented.

Each part has its rows in the module that reads them; docs/reference/settings.md is made of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from queuer.domain.errors import FieldProblem, InvalidInput

_OURS = "QUEUER_"
_SETTING = "variable"
_NEAR = 0.8
"""How like a variable a name must be to count as misspelt: no two variables of different programs are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An environment variable. `form`: what may be written, said again where a value is refused.

    `parse` raises ValueError. `default`: as one would write it, "" = nothing.
    """

    name: str
    meaning: str
    form: str = ""
    parse: Callable[[str], Any] = str
    default: str = ""
    needed: bool = False

    def text(self, environ: Mapping[str, str]) -> str:
        """The written value, else the default."""
        return environ.get(self.name) or self.default


def setting(variable: Variable, **without: Any) -> Any:
    """A field of a record, with the default of its variable. `without`: arguments of `field` where that has none."""
    known = {"default": variable.parse(variable.default)} if variable.default else without
    return field(metadata={_SETTING: variable}, **known)


def variables_of(record: type) -> dict[str, Variable]:
    """The variable of each field that is a `setting`."""
    return {each.name: each.metadata[_SETTING] for each in fields(record) if _SETTING in each.metadata}


def read(environ: Mapping[str, str], table: Mapping[str, Variable]) -> dict[str, Any]:
    """Values by the table's keys, of what is set or has a default. Raises InvalidInput naming all that is wrong."""
    values: dict[str, Any] = {}
    problems: list[FieldProblem] = []
    for key, variable in table.items():
        text = variable.text(environ)
        try:
            if text:
                values[key] = variable.parse(text)
            elif variable.needed:
                problems.append(FieldProblem(field=variable.name, message="not set", hint=variable.form))
        except ValueError as error:
            problems.append(FieldProblem(field=variable.name, message=str(error), hint=variable.form))
    if problems:
        raise InvalidInput(*problems)
    return values


def misspelt(environ: Mapping[str, str], known: Iterable[Variable]) -> dict[str, str]:
    """Variables of Queuer that resemble a known one and are not known: each with the nearest.

    Others may be those of another program, or of a Service whose name begins with `queuer`.
    """
    names = [variable.name.removeprefix(_OURS) for variable in known if variable.name.startswith(_OURS)]
    own = sorted(name.removeprefix(_OURS) for name in environ if name.startswith(_OURS))
    near = {name: get_close_matches(name, names, n=1, cutoff=_NEAR) for name in own if name not in names}
    return {_OURS + name: _OURS + found[0] for name, found in near.items() if found}


def seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{text!r} is not a number of seconds")
    return value


def some_seconds(text: str) -> float:
    """A number of seconds above 0."""
    value = seconds(text)
    if not value:
        raise ValueError(f"{text!r} seconds are none: nothing could happen in that time; give more than 0")
    return value


def count(text: str) -> int:
    """A whole number above 0."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def port(text: str) -> int:
    """A port, 0 for any free one."""
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise ValueError(f"{text!r} is not a port")
    return int(text)


def switch(text: str) -> bool:
    """True or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def names(text: str) -> tuple[str, ...]:
    """Names by comma."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def path(text: str) -> Path:
    """A file or folder; `~` is the home of who runs the program."""
    return Path(text).expanduser()


SECONDS = "seconds"
SOME_SECONDS = "seconds above 0"
PORT = "0 to 65535, 0 = any free one"
NAMES = "names, by comma"
KUBECONFIG = Variable(
    name="KUBECONFIG", form="file", parse=path,
    meaning="The cluster. Not set: that of the pod the program runs in.",
)  # fmt: skip
OLDEST_POSTGRES = 15
"""The oldest major version that the schema works on."""
DATABASE_URL = Variable(
    name="QUEUER_DATABASE_URL", form="postgresql://user:password@host:5432/database", needed=True,
    meaning=f"PostgreSQL, {OLDEST_POSTGRES} or newer. "
    "The controller needs a direct connection: it keeps a session lock.",
)  # fmt: skip

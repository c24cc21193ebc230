"""Job traces: CSV files (plain or gzip) of who asked for how many GPUs, when, and for how long.

Nothing in them is taken on trust: every wrong field is named by file, row (its line; the header is 1) and column.
`docs/simulator.md` has the columns.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import Problems, nearest, twice
from queuer.domain.queue import ROOT, check_path
from queuer.sim.files import read_text

OTHER = "other"
"""The queue of rows that name none."""
LEAST = 1.0
"""Seconds that a job runs whose duration is 0."""
MOST_SECONDS, MOST_COUNT = 10**11, 10**6
"""Seconds, and numbers of nodes, pods and GPUs, beyond which a field is taken for a mistake."""
SHOWN = 5
"""Problems told at once; more of them are counted."""
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_JOBS = ("job_id", "submit_s", "duration_s", "queue", "pods", "gpus_per_pod")
_QUEUES = ("queue", "nodes", "gpus_per_node")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One row. `row`: its line in the file. `submitted`, `duration` (above 0), `walltime` (the user's own
    bound): seconds. `pods` equal pods of `gpus` GPUs each.
    """

    row: int
    name: str
    queue: str
    submitted: float
    duration: float
    pods: int
    gpus: int
    user: str = ""
    walltime: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQueue:
    """One row of a queue file: whole nodes that are a queue's own."""

    row: int
    name: str
    nodes: int
    gpus_per_node: int


def path_of(name: str) -> str:
    """The queue path of a trace's name: `a/b` → `root.a.b`, lower case, `_` as `-`."""
    return ".".join((ROOT, *name.lower().replace("_", "-").split("/")))


def gang_of(gpus: int, *, per_node: int) -> tuple[int, int]:
    """Pods and GPUs of each for a job of which only the sum is known: equal pods, as large as a node allows.

    On nodes of 8: 4 → (1, 4), 16 → (2, 8), 12 → (2, 6), 20 → (4, 5).
    """
    each = next(d for d in range(min(gpus, per_node), 0, -1) if gpus % d == 0)
    return gpus // each, each


def read_jobs(
    path: Path,
    *,
    gpus_per_node: int,
    queues: Iterable[str] = (),
    start: float | None = None,
    end: float | None = None,
) -> tuple[TraceJob, ...]:
    """The jobs of a trace, in the order of the file.

    `queues`: only theirs, all if empty. `start`, `end`: only those submitted then, both included; times stay
    the file's. Raises InvalidInput naming rows and columns, or a queue that is not in the file.
    """
    wanted, seen = frozenset(queues), set[str]()
    problems, found = Problems(), []
    for fields in _rows(path, needed=_JOBS, problems=problems):
        name = fields.text("queue") or OTHER
        seen.add(name)
        if wanted and name not in wanted:
            continue
        submitted = fields.number("submit_s")
        if submitted is None or (start is not None and submitted < start):
            continue
        if end is not None and submitted > end:
            continue
        job = _job(fields, queue=name, submitted=submitted, gpus_per_node=gpus_per_node)
        if job is not None:
            found.append(job)
    for name in sorted(wanted - seen):
        problems.note("--queue", f"{name!r} is no queue of {path.name}", nearest(name, seen))
    settle(problems)
    if not found:
        raise InvalidInput.at(str(path), "no job is left", "widen --from, --to")
    _unique(found, path)
    return tuple(found)


def read_queues(path: Path) -> tuple[TraceQueue, ...]:
    """The queues of a file and their nodes, in its order. Raises InvalidInput naming rows and columns."""
    problems, found = Problems(), dict[str, TraceQueue]()
    for fields in _rows(path, needed=_QUEUES, problems=problems):
        name = fields.text("queue")
        nodes, gpus = fields.whole("nodes", least=0), fields.whole("gpus_per_node", least=1)
        if not name:
            fields.note("queue", "is empty")
        elif path_of(name) in found:
            fields.note("queue", f"{name!r} was named in row {found[path_of(name)].row} already")
        elif nodes is not None and gpus is not None:
            found[path_of(name)] = TraceQueue(row=fields.row, name=name, nodes=nodes, gpus_per_node=gpus)
            fields.attempt("queue", name)
    settle(problems)
    return tuple(found.values())


def field_of(path: Path, row: int, column: str) -> str:
    """How a field of a trace is named in errors."""
    return f"{path.name} row {row} {column}".rstrip()


class _Fields:
    """One row; what is wrong with it is noted under its number."""

    def __init__(self, path: Path, row: int, values: Mapping[str, str | None], problems: Problems) -> None:
        self.row = row
        self._path = path
        self._values = values
        self._problems = problems

    def note(self, column: str, message: str, hint: str = "") -> None:
        self._problems.note(field_of(self._path, self.row, column), message, hint)

    def attempt(self, column: str, name: str) -> None:
        """Note what is wrong with the name of a queue."""
        at = field_of(self._path, self.row, column)
        self._problems.attempt(lambda: check_path(path_of(name), field=at))

    def text(self, column: str) -> str:
        return (self._values.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """A number of seconds from 0; None = noted."""
        return self._read(column, _number, "a number of seconds", least=0, most=MOST_SECONDS)

    def whole(self, column: str, *, least: int) -> int | None:
        """A whole number; None = noted."""
        got = self._read(column, _whole, "a whole number", least=least, most=MOST_COUNT)
        return None if got is None else int(got)

    def _read(
        self, column: str, parse: Callable[[str], float], kind: str, *, least: int, most: int
    ) -> float | None:
        text = self.text(column)
        try:
            value = parse(text)
        except ValueError:
            value = float("nan")
        if not isfinite(value):
            self.note(
                column, f"{kind} is needed, got {text!r}" if text else f"{kind} is needed, the field is empty"
            )
            return None
        if value < least:
            self.note(column, f"{text} is less than {least}", f"write {least} or more")
            return None
        if value > most:
            self.note(column, f"{text} is more than {most}")
            return None
        return value


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def _whole(text: str) -> int:
    value = _number(text)
    if not value.is_integer():
        raise ValueError(text)
    return int(value)


def _job(fields: _Fields, *, queue: str, submitted: float, gpus_per_node: int) -> TraceJob | None:
    duration, gang = fields.number("duration_s"), _gang(fields, gpus_per_node)
    walltime = fields.number("walltime_s") if fields.text("walltime_s") else None
    name = fields.text("job_id")
    if not name:
        fields.note("job_id", "is empty")
    fields.attempt("queue", queue)
    if duration is None or gang is None or not name:
        return None
    return TraceJob(
        row=fields.row,
        name=name,
        queue=queue,
        submitted=submitted,
        duration=duration or LEAST,
        pods=gang[0],
        gpus=gang[1],
        user=fields.text("user"),
        walltime=walltime,
    )


def _gang(fields: _Fields, gpus_per_node: int) -> tuple[int, int] | None:
    """Pods and GPUs of each; where `pods` is empty, `gpus_per_pod` is the sum of the job."""
    gpus = fields.whole("gpus_per_pod", least=1)
    if not fields.text("pods"):
        return None if gpus is None else gang_of(gpus, per_node=gpus_per_node)
    pods = fields.whole("pods", least=1)
    return None if gpus is None or pods is None else (pods, gpus)


def _rows(path: Path, *, needed: tuple[str, ...], problems: Problems) -> Iterator[_Fields]:
    text = read_text(path, hint="give a CSV file, plain or gzip")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        _check_columns(reader.fieldnames or (), path, needed, problems)
        for values in reader:
            row = _Fields(path, reader.line_num, values, problems)
            if None in values:
                row.note("", "has more fields than the header", "put what holds a comma in quotes")
            yield row
    except csv.Error as error:
        problems.note(f"{path.name} after row {reader.line_num}", f"is no CSV: {error}")


def _check_columns(columns: Sequence[str], path: Path, needed: Iterable[str], problems: Problems) -> None:
    """Raise InvalidInput where one is missing, or there twice."""
    hint = f"columns: {', '.join(columns)}"
    for column in needed:
        if column not in columns:
            problems.note(field_of(path, 1, column), "the column is missing", hint)
    for column in twice(columns):
        problems.note(field_of(path, 1, column), "the column is there twice", hint)
    settle(problems)


def _unique(jobs: Iterable[TraceJob], path: Path) -> None:
    rows, problems = dict[str, int](), Problems()
    for job in jobs:
        if rows.setdefault(job.name, job.row) != job.row:
            problems.note(
                field_of(path, job.row, "job_id"), f"{job.name!r} was named in row {rows[job.name]} already"
            )
    settle(problems)


def settle(problems: Problems) -> None:
    """Raise what was found: the first few, and how many more there are."""
    more = len(problems.found) - SHOWN
    if more > 0:
        problems.found[SHOWN:] = [FieldProblem(field="and more", message=f"{more} further problems")]
    problems.settle()

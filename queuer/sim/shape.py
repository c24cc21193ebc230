"""The shape of a scenario file, checked before it is read: what is not as `tests/scenarios/schema.json` says is named
by its place. Values of single fields (paths, quantities, words) are checked where they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import Problems, nearest
from queuer.domain.nodes import TaintEffect

_PLACE = re.compile(r"^(.*) - at `(?:key in )?\$\.?(.*)`$")
Amount = str | int | float
Seconds = Annotated[int, msgspec.Meta(ge=0)]
Names = Annotated[str, msgspec.Meta(min_length=1)]


class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all: camelCase in the file, nothing that is not known."""


class _Taint(_Struct, frozen=True):
    key: str
    effect: TaintEffect
    value: str = ""


class _Nodes(_Struct, frozen=True):
    names: Names
    allocatable: dict[str, Amount]
    labels: dict[str, str] = {}
    taints: list[_Taint] = []
    unschedulable: bool = False


class _Foreign(_Struct, frozen=True):
    node: Names
    requests: dict[str, Amount]


class _Toleration(_Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _PodSet(_Struct, frozen=True):
    name: Names
    count: Annotated[int, msgspec.Meta(ge=1)]
    requests: dict[str, Amount]
    min_count: int | None = None
    node_selector: dict[str, str] = {}
    tolerations: list[_Toleration] = []
    required: str | None = None
    preferred: str | None = None


class _Running(_Struct, frozen=True):
    since: int
    nodes: dict[str, int] | None = None
    spread: str | None = None

    def __post_init__(self) -> None:
        if (self.nodes is None) == (self.spread is None):
            raise ValueError("either nodes or spread says where it runs")


class _Workload(_Struct, frozen=True):
    name: Names
    queue: str
    pod_sets: Annotated[list[_PodSet], msgspec.Meta(min_length=1)]
    copies: int | None = None
    every: int | None = None
    priority: int = 0
    submit: int | None = None
    runtime: int | None = None
    estimate: int | None = None
    preemptible: bool = True
    hold: bool = False
    required: str | None = None
    preferred: str | None = None
    running: _Running | None = None


class _Queue(msgspec.Struct, frozen=True):  # the rest is read as in a QueueTree document
    path: Names


class _Event(_Struct, frozen=True):
    at: Seconds
    cordon: list[str] | None = None
    uncordon: list[str] | None = None
    fail: list[str] | None = None
    delete: list[str] | None = None
    hold: list[str] | None = None
    release: list[str] | None = None
    queue: _Queue | None = None


class _Count(_Struct, frozen=True):
    of: list[str]
    admitted: int | None = None
    equals: int | None = None
    min: int | None = None
    max: int | None = None


class _Domains(_Struct, frozen=True, rename={"within": "in"}):
    level: str
    count: int | None = None
    within: list[str] | None = None
    pods: dict[str, int] | None = None


class _Window(_Struct, frozen=True):
    by: Seconds | None = None
    after: Seconds | None = None


class _Always(_Struct, frozen=True):
    evictions: int | None = None
    never_admitted: list[str] | None = None
    whole_gangs: bool | None = None


class _Expectation(_Struct, frozen=True):
    at: Seconds | None = None
    admitted: list[str] = []
    waiting: dict[str, list[str]] = {}
    evicted: list[str] = []
    count: _Count | None = None
    evicted_count: _Count | None = None
    domains: dict[str, _Domains] = {}
    used: dict[str, dict[str, Amount]] = {}
    always: _Always | None = None
    started: dict[str, _Window] = {}

    def __post_init__(self) -> None:
        if (self.at is not None) + (self.always is not None) + bool(self.started) != 1:
            raise ValueError("one of at, always and started says when it must hold")

    def patterns(self) -> Iterator[str]:
        """All names of workloads, `x-*` among them."""
        yield from (*self.admitted, *self.waiting, *self.evicted, *self.domains, *self.started)
        for count in (self.count, self.evicted_count):
            yield from count.of if count else ()
        yield from (self.always.never_admitted or ()) if self.always else ()


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    nodes: Annotated[list[_Nodes], msgspec.Meta(min_length=1)]
    queues: Annotated[list[_Queue], msgspec.Meta(min_length=1)]
    workloads: Annotated[list[_Workload], msgspec.Meta(min_length=1)]
    expect: Annotated[list[_Expectation], msgspec.Meta(min_length=1)]
    foreign: list[_Foreign] = []
    events: list[_Event] = []


def shape_of(document: Mapping[str, Any]) -> Shape:
    """The document in its shape. Raises InvalidInput naming the first field that has another."""
    try:
        return msgspec.convert(document, Shape)
    except msgspec.ValidationError as error:
        found = _PLACE.match(str(error))
        message, field = found.groups() if found else (str(error), "document")
        hint = "tests/scenarios/README.md has the grammar"
        raise InvalidInput(FieldProblem(field=field or "document", message=message, hint=hint)) from error


def check_names(shape: Shape, *, nodes: Iterable[str], workloads: Iterable[str], problems: Problems) -> None:
    """Note the names of nodes and workloads that the file itself does not have."""
    there, jobs = frozenset(nodes), tuple(workloads)
    for name in {name for name in jobs if jobs.count(name) > 1}:
        problems.note("workloads", f"{name!r} is there twice")
    for i, foreign in enumerate(shape.foreign):
        _known([foreign.node], there, f"foreign[{i}].node", problems)
    for i, event in enumerate(shape.events):
        for kind in ("cordon", "uncordon", "fail"):
            _known(getattr(event, kind) or (), there, f"events[{i}].{kind}", problems)
    for i, row in enumerate(shape.expect):
        for pattern in row.patterns():
            prefix = pattern.removesuffix("*")
            if not any(job.startswith(prefix) if pattern.endswith("*") else job == pattern for job in jobs):
                problems.note(f"expect[{i}]", f"{pattern!r} names no workload", nearest(pattern, jobs))


def _known(names: Iterable[str], there: frozenset[str], at: str, problems: Problems) -> None:
    for name in names:
        if name not in there:
            problems.note(at, f"{name!r} is no node", nearest(name, there))

"""The shape of a scenario file, checked before it is read.

An error names the place that breaks `tests/scenarios/schema.json`, or that asks for too much to run. Quotas and
policies are checked where they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import msgspec

from queuer.domain.errors import InvalidInput, located
from queuer.domain.fields import twice
from queuer.domain.nodes import TaintEffect
from queuer.domain.reasons import Token

MOST_ROWS = 100_000
"""Nodes, workloads with their copies, and other rows of one story."""
_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
Amount = str | int
Seconds = Annotated[int, msgspec.Meta(ge=0, le=10**11)]
Moment = Annotated[int, msgspec.Meta(ge=-(10**11), le=10**11)]
Number = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Name = Annotated[str, msgspec.Meta(pattern=f"^{_WORD}$", max_length=63)]
Names = Annotated[str, msgspec.Meta(pattern=rf"^{_WORD}(\.\.{_WORD})?$", max_length=128)]
Match = Annotated[str, msgspec.Meta(pattern=rf"^{_WORD}(-\*)?$", max_length=65)]
Path = Annotated[str, msgspec.Meta(pattern=rf"^root(\.{_WORD})*$", max_length=63)]
Amounts = dict[Text, Amount]


class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all: camelCase in the file, nothing that is not known, no text twice in a list."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, list) and all(isinstance(item, str) for item in value):
                for item in twice(value):
                    raise ValueError(f"{item!r} is there twice")

    def said(self, *fields: str) -> int:
        """How many of these fields are there."""
        return sum(getattr(self, field) is not None for field in fields)


class _Taint(_Struct, frozen=True, kw_only=True):
    key: str
    effect: TaintEffect
    value: str = ""


class NodeRow(_Struct, frozen=True, kw_only=True):
    """Nodes that are alike."""

    names: Names
    allocatable: Amounts
    labels: dict[str, str] = {}
    taints: list[_Taint] = []
    unschedulable: bool = False


class _Foreign(_Struct, frozen=True, kw_only=True):
    node: Name
    requests: Amounts


class _Toleration(_Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class _Flavor(_Struct, frozen=True, kw_only=True):
    name: Name
    node_labels: dict[str, str]
    tolerations: list[_Toleration] = []


class _Leveled(_Struct, frozen=True, kw_only=True):
    required: Text | None = None
    preferred: Text | None = None

    def __post_init__(self) -> None:
        if self.said("required", "preferred") > 1:
            raise ValueError("required and preferred exclude each other")


class PodSetRow(_Leveled, frozen=True, kw_only=True):
    """Pods of one role."""

    name: Name
    count: Count
    requests: Amounts
    min_count: Count | None = None
    node_selector: dict[str, str] = {}
    tolerations: list[_Toleration] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_count is not None and self.min_count > self.count:
            raise ValueError(f"minCount {self.min_count} is above count {self.count}")


class RunningRow(_Struct, frozen=True, kw_only=True):
    """Where a workload runs at time 0."""

    since: Annotated[int, msgspec.Meta(ge=-(10**11), le=0)]
    nodes: Annotated[dict[Names, Count], msgspec.Meta(min_length=1)] | None = None
    spread: Names | None = None

    def __post_init__(self) -> None:
        if self.said("nodes", "spread") != 1:
            raise ValueError("either nodes or spread says where it runs")


class WorkloadRow(_Leveled, frozen=True, kw_only=True):
    """A workload and its copies."""

    name: Name
    queue: Path
    pod_sets: Annotated[list[PodSetRow], msgspec.Meta(min_length=1)]
    copies: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS)] | None = None
    every: Annotated[int, msgspec.Meta(ge=1, le=10**6)] | None = None
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] = 0
    submit: Moment | None = None
    runtime: Seconds | None = None
    estimate: Seconds | None = None
    preemptible: bool = True
    hold: bool = False
    running: RunningRow | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.said("submit", "running"):
            raise ValueError("submit or running says when it comes")
        if self.every is not None and self.copies is None:
            raise ValueError("every is between copies")
        for name in twice(p.name for p in self.pod_sets):
            raise ValueError(f"two pod sets are named {name!r}")


class _Queue(msgspec.Struct, frozen=True):  # the rest is read as in a QueueTree document
    path: Path


class EventRow(_Struct, frozen=True, kw_only=True):
    """Something that happens."""

    at: Seconds
    cordon: list[Name] | None = None
    uncordon: list[Name] | None = None
    fail: list[Name] | None = None
    delete: list[Match] | None = None
    hold: list[Match] | None = None
    release: list[Match] | None = None
    queue: _Queue | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = ("cordon", "uncordon", "fail", "delete", "hold", "release", "queue")
        if self.said(*kinds) != 1:
            raise ValueError(f"one thing happens in an event: {', '.join(kinds)}")


class _Bounds(_Struct, frozen=True, kw_only=True):
    of: list[Match]
    min: Number | None = None
    max: Number | None = None
    exact: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.said(self.exact, "min", "max"):
            raise ValueError(f"{self.exact}, min or max says how many")


class _Count(_Bounds, frozen=True, kw_only=True):
    admitted: Number | None = None
    exact: ClassVar[str] = "admitted"


class _EvictedCount(_Bounds, frozen=True, kw_only=True):
    equals: Number | None = None
    exact: ClassVar[str] = "equals"


class _Domains(_Struct, frozen=True, kw_only=True, rename={"within": "in"}):
    level: Text
    count: Count | None = None
    within: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None
    pods: Annotated[dict[str, Count], msgspec.Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.said("count", "within", "pods"):
            raise ValueError("count, in or pods says which domains")


class _Window(_Struct, frozen=True, kw_only=True):
    by: Seconds | None = None
    after: Seconds | None = None

    def __post_init__(self) -> None:
        if not self.said("by", "after"):
            raise ValueError("by or after says when")


class _Always(_Struct, frozen=True, kw_only=True):
    evictions: Number | None = None
    never_admitted: list[Match] | None = None
    whole_gangs: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.said("evictions", "never_admitted", "whole_gangs"):
            raise ValueError("evictions, neverAdmitted or wholeGangs says what always holds")
        if self.whole_gangs is False:
            raise ValueError("wholeGangs can only be true")


class _Expectation(_Struct, frozen=True, kw_only=True):
    at: Seconds | None = None
    admitted: list[Match] | None = None
    waiting: dict[Match, list[Token]] | None = None
    evicted: list[Match] | None = None
    count: _Count | None = None
    evicted_count: _EvictedCount | None = None
    domains: Annotated[dict[Name, _Domains], msgspec.Meta(min_length=1)] | None = None
    used: Annotated[dict[Path, Amounts], msgspec.Meta(min_length=1)] | None = None
    always: _Always | None = None
    started: Annotated[dict[Name, _Window], msgspec.Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.said("at", "always", "started") != 1:
            raise ValueError("one of at, always and started says when it must hold")
        if bool(self.said(*_AT)) != (self.at is not None):
            raise ValueError(f"with at, and only with it, goes one of {', '.join(_AT)}")

    def patterns(self) -> Iterator[str]:
        """All names of workloads, `x-*` among them."""
        for names in (self.admitted, self.waiting, self.evicted, self.domains, self.started):
            yield from names or ()
        for count in (self.count, self.evicted_count):
            yield from count.of if count else ()
        yield from (self.always.never_admitted or ()) if self.always else ()


_AT = ("admitted", "waiting", "evicted", "count", "evicted_count", "domains", "used")


class Shape(_Struct, frozen=True, kw_only=True):
    """A whole file."""

    name: Name
    nodes: Annotated[list[NodeRow], msgspec.Meta(min_length=1, max_length=MOST_ROWS)]
    queues: Annotated[list[_Queue], msgspec.Meta(min_length=1, max_length=MOST_ROWS)]
    workloads: Annotated[list[WorkloadRow], msgspec.Meta(min_length=1, max_length=MOST_ROWS)]
    expect: Annotated[list[_Expectation], msgspec.Meta(min_length=1, max_length=MOST_ROWS)]
    source: Text | None = None
    why: Text | None = None
    exact: bool = True
    grace: Seconds = 0
    until: Seconds | None = None
    topology: list[Text] = []
    flavors: Annotated[list[_Flavor], msgspec.Meta(min_length=1)] | None = None
    foreign: list[_Foreign] = []
    events: list[EventRow] = []


def shape_of(document: object) -> Shape:
    """The document in its shape. Raises InvalidInput naming the first field that has another."""
    try:
        return msgspec.convert(document, Shape)
    except msgspec.ValidationError as error:
        path, message = located(error)
        hint, field = "tests/scenarios/README.md has the grammar", path.removeprefix(".") or "document"
        raise InvalidInput.at(field, message, hint) from error

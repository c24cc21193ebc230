"""Scenario files: a small cluster, queues, workloads, events, and what must come of them.

One YAML file is one story; `tests/scenarios/README.md` has the grammar and the rules of judgement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from queuer.domain.document import parse_flavor, parse_queue, parse_topology
from queuer.domain.errors import InvalidInput
from queuer.domain.fields import Problems
from queuer.domain.nodes import HOSTNAME, Flavor, Node, SchedulingTerms, Taint, Toleration, Topology
from queuer.domain.quantity import Resources, parse_resources
from queuer.domain.workload import PodSet, Workload
from queuer.sim.consistent import check_names, check_running, check_sums
from queuer.sim.files import read_yaml
from queuer.sim.shape import MOST_ROWS, EventRow, PodSetRow, RunningRow, Shape, WorkloadRow, shape_of

HOUR = 3600.0
_RANGE = re.compile(r"^(.*?)(\d+)\.\.(.*?)(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One workload's part: what it is, how long it runs (None = for ever), when it comes or where it already
    runs.

    `nodes`: pods by node for one that runs at time 0, with `workload.submitted` as its start.
    """

    workload: Workload
    runtime: float | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioEvent:
    """Something that happens at a time; `body` is the value of `kind` in the file."""

    at: float
    kind: str
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A parsed file. `queues`: bodies by path as in a QueueTree document, so that events can replace parts."""

    name: str
    why: str
    grace: float
    until: float
    topology: Topology
    flavors: tuple[Flavor, ...]
    nodes: tuple[Node, ...]
    foreign: tuple[tuple[str, Resources], ...]
    queues: Mapping[str, Mapping[str, Any]]
    stories: tuple[Story, ...]
    events: tuple[ScenarioEvent, ...]
    expect: tuple[Mapping[str, Any], ...]


def load(path: Path) -> Scenario:
    """The scenario in a file. Raises InvalidInput naming every wrong field."""
    return parse(read_yaml(path))


def parse(document: object) -> Scenario:
    """The scenario in plain data; null counts as absent. Raises InvalidInput naming every wrong field."""
    plain = _without_nulls(document)
    shape, problems = shape_of(plain), Problems()
    _check_size(shape)
    nodes = tuple(_nodes(shape, problems))
    stories = tuple(_stories(shape, frozenset(node.name for node in nodes), problems))
    events = tuple(_event(row, body) for row, body in zip(shape.events, plain.get("events", ()), strict=True))
    queues = {str(q["path"]): _without_path(q) for q in plain["queues"]}
    changes = ((str(e.body["path"]), _without_path(e.body)) for e in events if e.kind == "queue")
    for path, body in (*queues.items(), *changes):
        problems.attempt(partial(parse_queue, path, body))
    scenario = Scenario(
        name=shape.name,
        why=shape.why or "",
        grace=float(shape.grace),
        until=_until(shape, events, stories),
        topology=parse_topology({"levels": shape.topology}, problems=problems),
        flavors=tuple(parse_flavor(f, problems=problems) for f in plain.get("flavors", ())),
        nodes=nodes,
        foreign=tuple(
            (row.node, _amounts(row.requests, f"foreign[{i}].requests", problems))
            for i, row in enumerate(shape.foreign)
        ),
        queues=queues,
        stories=stories,
        events=events,
        expect=tuple(plain["expect"]),
    )
    names, workloads = [node.name for node in nodes], [story.workload for story in stories]
    check_names(shape, nodes=names, workloads=[w.uid for w in workloads], problems=problems)
    check_sums(nodes, (amounts for _, amounts in scenario.foreign), workloads, problems)
    problems.settle()
    return scenario


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _check_size(shape: Shape) -> None:
    """Raise InvalidInput where nodes or workloads, written out, are more than can be run."""
    ranges = {"nodes": [row.names for row in shape.nodes]}
    for i, row in enumerate(shape.workloads):
        if row.running is not None:
            ranges[f"workloads[{i}].running"] = [
                *(row.running.nodes or ()),
                *filter(None, [row.running.spread]),
            ]
    counts = {at: sum(_size(text) for text in texts) for at, texts in ranges.items()}
    counts["workloads"] = sum(row.copies or 1 for row in shape.workloads)
    for at, count in counts.items():
        if count > MOST_ROWS:
            raise InvalidInput.at(at, f"{count} are more than {MOST_ROWS}")


def names_of(text: str) -> list[str]:
    """`n1..n4` → n1, n2, n3, n4; any other text is one name."""
    if ".." not in text:
        return [text]
    prefix, low, high = _ends(text)
    return [f"{prefix}{n}" for n in range(low, high + 1)]


def _size(text: str) -> int:
    """How many names there are in a text."""
    if ".." not in text:
        return 1
    _, low, high = _ends(text)
    return high - low + 1


def _ends(text: str) -> tuple[str, int, int]:
    """Prefix, first and last number of a range of names."""
    match = _RANGE.match(text)
    prefix, low, again, high = match.groups() if match else ("", "1", "", "0")
    if prefix != again or int(low) > int(high):
        raise InvalidInput.at("names", f"{text!r} is not a range", "write e.g. n1..n4")
    return prefix, int(low), int(high)


def _until(shape: Shape, events: tuple[ScenarioEvent, ...], stories: tuple[Story, ...]) -> float:
    if shape.until is not None:
        return float(shape.until)
    times = [e.at for e in events] + [s.workload.submitted for s in stories] + [0.0]
    for row in shape.expect:
        windows = (row.started or {}).values()
        times += [float(t) for t in (row.at, *(t for w in windows for t in (w.by, w.after))) if t is not None]
    return max(times) + HOUR


def _event(row: EventRow, body: Mapping[str, Any]) -> ScenarioEvent:
    kind = next(key for key in body if key != "at")
    return ScenarioEvent(at=float(row.at), kind=kind, body=body[kind])


def _without_path(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "path"}


def _amounts(values: Mapping[str, Any], at: str, problems: Problems) -> dict[str, int]:
    return problems.attempt(lambda: parse_resources(values, field=at, whole=True)) or {}


def _nodes(shape: Shape, problems: Problems) -> Iterator[Node]:
    for i, row in enumerate(shape.nodes):
        allocatable = _amounts(row.allocatable, f"nodes[{i}].allocatable", problems)
        for name in names_of(row.names):
            yield Node(
                name=name,
                labels={**row.labels, HOSTNAME: name},
                allocatable=allocatable,
                taints=tuple(Taint(key=t.key, value=t.value, effect=t.effect) for t in row.taints),
                unschedulable=row.unschedulable,
            )


def _stories(shape: Shape, nodes: frozenset[str], problems: Problems) -> Iterator[Story]:
    for i, row in enumerate(shape.workloads):
        at = f"workloads[{i}]"
        pod_sets = tuple(_pod_set(p, f"{at}.podSets[{n}]", problems) for n, p in enumerate(row.pod_sets))
        start = row.running.since if row.running is not None else row.submit or 0
        places = _places(row.running, sum(p.count for p in pod_sets))
        for copy in range(row.copies or 1):
            workload = _workload(row, pod_sets, copy=copy, submitted=float(start + copy * (row.every or 0)))
            there = places[copy % len(places)]
            if there:
                check_running(f"{at}.running", workload, there, nodes, problems)
            yield Story(
                workload=workload,
                runtime=None if row.runtime is None else float(row.runtime),
                nodes=there,
            )


def _places(running: RunningRow | None, pods: int) -> list[dict[str, int]]:
    """Where copies run, in turn: pods by node."""
    if running is None:
        return [{}]
    if running.spread is not None:
        return [{name: pods} for name in names_of(running.spread)]
    return [{name: count for text, count in (running.nodes or {}).items() for name in names_of(text)}]


def _workload(row: WorkloadRow, pod_sets: tuple[PodSet, ...], *, copy: int, submitted: float) -> Workload:
    name = row.name if row.copies is None else f"{row.name}-{copy + 1}"
    return Workload(
        uid=name,
        kind="Job",
        namespace="scenario",
        name=name,
        queue=row.queue,
        pod_sets=pod_sets,
        submitted=submitted,
        priority=row.priority,
        preemptible=row.preemptible,
        required=row.required,
        preferred=row.preferred,
        estimate=None if row.estimate is None else float(row.estimate),
        hold=row.hold,
    )


def _pod_set(row: PodSetRow, at: str, problems: Problems) -> PodSet:
    tolerations = (
        Toleration(key=t.key, operator=t.operator, value=t.value, effect=t.effect) for t in row.tolerations
    )
    return PodSet(
        name=row.name,
        count=row.count,
        min_count=row.min_count,
        requests={"pods": 1, **_amounts(row.requests, f"{at}.requests", problems)},
        terms=SchedulingTerms(node_selector=row.node_selector, tolerations=tuple(tolerations)),
        required=row.required,
        preferred=row.preferred,
    )

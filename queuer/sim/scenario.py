"""Scenario files: a small cluster, queues, workloads, events, and what must come of them.

One YAML file is one story; `tests/scenarios/README.md` has the grammar and the rules of judgement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from queuer.domain.document import parse_flavor, parse_topology
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import Problems, Reader
from queuer.domain.nodes import (
    HOSTNAME,
    Flavor,
    Node,
    SchedulingTerms,
    Taint,
    TaintEffect,
    Toleration,
    Topology,
)
from queuer.domain.quantity import Resources, parse_resources
from queuer.domain.workload import PodSet, Workload
from queuer.sim.shape import check_names, shape_of

HOUR = 3600.0
_TOP = (
    "name", "source", "why", "exact", "grace", "until", "topology", "flavors", "nodes", "foreign", "queues",
    "workloads", "events", "expect",
)  # fmt: skip
_WORKLOAD = (
    "name", "copies", "every", "queue", "priority", "submit", "runtime", "estimate", "preemptible", "hold",
    "required", "preferred", "podSets", "running",
)  # fmt: skip
_POD_SET = ("name", "count", "minCount", "requests", "nodeSelector", "tolerations", "required", "preferred")
_EVENT = ("at", "cordon", "uncordon", "fail", "delete", "hold", "release", "queue")
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
class Event:
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
    events: tuple[Event, ...]
    expect: tuple[Mapping[str, Any], ...]


def load(path: Path) -> Scenario:
    """The scenario in a file. Raises InvalidInput naming every wrong field."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InvalidInput(FieldProblem(field=str(path), message=message)) from error
    return parse(document)


def parse(document: object) -> Scenario:
    """The scenario in plain data."""
    problems = Problems()
    reader = Reader(document, at="", known=_TOP, problems=problems)
    for key in ("name", "nodes", "queues", "workloads", "expect"):
        reader.need(key)
    problems.settle()
    shape = shape_of(reader.values)
    events = tuple(_events(reader, problems))
    expect = tuple(reader.items("expect"))
    stories = tuple(_stories(reader, problems))
    scenario = Scenario(
        name=reader.text("name") or "",
        why=reader.text("why") or "",
        grace=float(reader.whole("grace") or 0),
        until=_until(reader, events, expect, stories),
        topology=parse_topology({"levels": list(reader.texts("topology"))}, problems=problems),
        flavors=tuple(parse_flavor(f, problems=problems) for f in reader.items("flavors")),
        nodes=tuple(_nodes(reader, problems)),
        foreign=tuple(
            (str(f["node"]), parse_resources(f["requests"], field="foreign.requests"))
            for f in reader.items("foreign")
        ),
        queues={str(q["path"]): {k: v for k, v in q.items() if k != "path"} for q in reader.items("queues")},
        stories=stories,
        events=events,
        expect=expect,
    )
    check_names(
        shape,
        nodes=(node.name for node in scenario.nodes),
        workloads=(story.workload.uid for story in stories),
        problems=problems,
    )
    problems.settle()
    return scenario


def names_of(text: str) -> list[str]:
    """`n1..n4` → n1, n2, n3, n4; any other text is one name."""
    match = _RANGE.match(text)
    if match is None:
        return [text]
    prefix, low, again, high = match.groups()
    if prefix != again or int(low) > int(high):
        raise InvalidInput(
            FieldProblem(field="names", message=f"{text!r} is not a range", hint="write e.g. n1..n4")
        )
    return [f"{prefix}{n}" for n in range(int(low), int(high) + 1)]


def _until(
    reader: Reader, events: tuple[Event, ...], expect: tuple[Any, ...], stories: tuple[Story, ...]
) -> float:
    stated = reader.whole("until")
    if stated is not None:
        return float(stated)
    times = [e.at for e in events] + [s.workload.submitted for s in stories] + [0.0]
    for row in expect:
        times.append(float(row.get("at", 0)))
        for window in row.get("started", {}).values():
            times += [float(t) for t in window.values()]
    return max(times) + HOUR


def _events(reader: Reader, problems: Problems) -> Iterator[Event]:
    for i, item in enumerate(reader.items("events")):
        row = Reader(item, at=f"events[{i}]", known=_EVENT, problems=problems)
        at = row.whole("at") or 0
        for kind in _EVENT[1:]:
            if row.said(kind):
                yield Event(at=float(at), kind=kind, body=row.values[kind])


def _nodes(reader: Reader, problems: Problems) -> Iterator[Node]:
    for i, item in enumerate(reader.items("nodes")):
        known = ("names", "labels", "allocatable", "taints", "unschedulable")
        row = Reader(item, at=f"nodes[{i}]", known=known, problems=problems)
        taints = tuple(
            Taint(key=t["key"], value=t.get("value", ""), effect=TaintEffect(t["effect"]))
            for t in row.items("taints")
        )
        for name in names_of(row.text("names") or ""):
            yield Node(
                name=name,
                labels={**row.labels("labels"), HOSTNAME: name},
                allocatable=parse_resources(row.values.get("allocatable", {}), field=row.path("allocatable")),
                taints=taints,
                unschedulable=bool(row.flag("unschedulable")),
            )


def _stories(reader: Reader, problems: Problems) -> Iterator[Story]:
    for i, item in enumerate(reader.items("workloads")):
        row = Reader(item, at=f"workloads[{i}]", known=_WORKLOAD, problems=problems)
        name, copies = row.text("name") or "", row.whole("copies", least=1)
        running = row.values.get("running")
        start = float(running["since"] if running else row.values.get("submit", 0))
        runtime = row.whole("runtime")
        for copy in range(copies or 1):
            yield Story(
                workload=_workload(
                    row,
                    problems,
                    name=name if copies is None else f"{name}-{copy + 1}",
                    submitted=start + copy * float(row.whole("every") or 0),
                ),
                runtime=None if runtime is None else float(runtime),
                nodes=_running(running, row, copy=copy) if running else {},
            )


def _running(running: Mapping[str, Any], row: Reader, *, copy: int) -> dict[str, int]:
    if "spread" in running:
        names = names_of(running["spread"])
        return {names[copy % len(names)]: sum(int(p["count"]) for p in row.items("podSets"))}
    return {name: int(count) for text, count in running["nodes"].items() for name in names_of(text)}


def _workload(row: Reader, problems: Problems, *, name: str, submitted: float) -> Workload:
    estimate = row.whole("estimate")
    preemptible = row.flag("preemptible")
    return Workload(
        uid=name,
        kind="Job",
        namespace="scenario",
        name=name,
        queue=row.text("queue") or "",
        pod_sets=tuple(
            _pod_set(p, row.path(f"podSets[{i}]"), problems) for i, p in enumerate(row.items("podSets"))
        ),
        submitted=submitted,
        priority=int(row.values.get("priority", 0)),
        preemptible=True if preemptible is None else preemptible,
        required=row.text("required"),
        preferred=row.text("preferred"),
        estimate=None if estimate is None else float(estimate),
        hold=bool(row.flag("hold")),
    )


def _pod_set(item: object, at: str, problems: Problems) -> PodSet:
    row = Reader(item, at=at, known=_POD_SET, problems=problems)
    requests = parse_resources(row.values.get("requests", {}), field=row.path("requests"))
    return PodSet(
        name=row.text("name") or "",
        count=row.whole("count", least=1) or 1,
        min_count=row.whole("minCount", least=1),
        requests={"pods": 1, **requests},
        terms=SchedulingTerms(
            node_selector=row.labels("nodeSelector"),
            tolerations=tuple(Toleration(**t) for t in row.items("tolerations")),
        ),
        required=row.text("required"),
        preferred=row.text("preferred"),
    )

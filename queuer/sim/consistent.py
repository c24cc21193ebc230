"""Whether a story agrees with itself: names that are there, none twice, sums that 64 bits hold.

`queuer.sim.shape` has looked at every field by itself before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from queuer.domain.fields import Problems, nearest, twice
from queuer.domain.nodes import Node
from queuer.domain.quantity import MAX_AMOUNT, Resources, add, parse_resources
from queuer.domain.queue import ROOT
from queuer.domain.workload import Workload
from queuer.sim.shape import Shape


def check_names(shape: Shape, *, nodes: Sequence[str], workloads: Sequence[str], problems: Problems) -> None:
    """Note the names of nodes, workloads and queues that the file does not have, or has twice."""
    for what, names in (
        ("nodes", nodes),
        ("workloads", workloads),
        ("queues", [q.path for q in shape.queues]),
    ):
        for name in twice(names):
            problems.note(what, f"{name!r} is there twice")
    there = frozenset(nodes)
    for i, foreign in enumerate(shape.foreign):
        _known([foreign.node], there, f"foreign[{i}].node", problems)
    paths = {ROOT, *(q.path for q in shape.queues), *(e.queue.path for e in shape.events if e.queue)}
    paths |= {path.rsplit(".", n)[0] for path in list(paths) for n in range(1, path.count("."))}
    for i, row in enumerate(shape.workloads):
        if row.queue not in paths:
            problems.note(f"workloads[{i}].queue", f"{row.queue!r} is no queue", nearest(row.queue, paths))
    _check_events(shape, there, workloads, problems)
    _check_expectations(shape, workloads, paths, problems)


def _check_events(shape: Shape, nodes: frozenset[str], workloads: Sequence[str], problems: Problems) -> None:
    """A node that has failed is not there any more."""
    left = set(nodes)
    for i, event in sorted(enumerate(shape.events), key=lambda row: row[1].at):
        for kind in ("cordon", "uncordon", "fail"):
            for name in getattr(event, kind) or ():
                at = f"events[{i}].{kind}"
                if name in nodes and name not in left:
                    problems.note(at, f"{name!r} has failed before")
                _known([name], nodes, at, problems)
        left -= {*(event.fail or ())}
        for kind in ("delete", "hold", "release"):
            _match(getattr(event, kind) or (), workloads, f"events[{i}].{kind}", problems)


def _check_expectations(
    shape: Shape, workloads: Sequence[str], paths: Collection[str], problems: Problems
) -> None:
    for i, row in enumerate(shape.expect):
        _match(row.patterns(), workloads, f"expect[{i}]", problems)
        for path, amounts in (row.used or {}).items():
            at = f"expect[{i}].used"
            if path not in paths:
                problems.note(at, f"{path!r} is no queue", nearest(path, paths))
            problems.attempt(partial(parse_resources, amounts, field=f"{at}.{path}"))


def check_running(
    at: str, workload: Workload, nodes: dict[str, int], there: frozenset[str], problems: Problems
) -> None:
    """Note what is wrong with where a workload runs: pods by node."""
    _known(nodes, there, at, problems)
    most = sum(p.count for p in workload.pod_sets)
    least = sum(p.min_count or p.count for p in workload.pod_sets)
    if not least <= sum(nodes.values()) <= most:
        problems.note(at, f"{sum(nodes.values())} pods run, the pod sets have {most}")


def check_sums(
    nodes: Iterable[Node], foreign: Iterable[Resources], workloads: Iterable[Workload], problems: Problems
) -> None:
    """Note resources of which there is more than can be summed."""
    for at, amounts in (
        ("nodes", (node.allocatable for node in nodes)),
        ("foreign", foreign),
        ("workloads", (workload.demand for workload in workloads)),
    ):
        total: dict[str, int] = {}
        for more in amounts:
            total = add(total, more)
        for resource, amount in total.items():
            if amount > MAX_AMOUNT:
                problems.note(at, f"{amount} {resource} in all is more than 2^62", "write smaller amounts")


def _known(names: Iterable[str], there: frozenset[str], at: str, problems: Problems) -> None:
    for name in names:
        if name not in there:
            problems.note(at, f"{name!r} is no node", nearest(name, there))


def _match(patterns: Iterable[str], workloads: Sequence[str], at: str, problems: Problems) -> None:
    for pattern in patterns:
        if not any(matches(uid, pattern) for uid in workloads):
            problems.note(at, f"{pattern!r} names no workload", nearest(pattern, workloads))


def matches(uid: str, pattern: str) -> bool:
    """A trailing `*` matches copies."""
    return uid.startswith(pattern[:-1]) if pattern.endswith("*") else uid == pattern

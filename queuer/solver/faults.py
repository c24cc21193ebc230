"""Faults that make a decision impossible: numbers that no arithmetic can use, and contradictions, by field.

The caches of a decision check each record once, when they take it over; a stored cycle is checked whole. A waiting
workload with a fault is set aside; any other fault refuses the snapshot. Numbers are checked by msgspec, against a copy
of each record's type that bounds every number in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import chain, islice
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from queuer.domain.assignments import Bond, Reservation
from queuer.domain.errors import FieldProblem, InvalidInput, located
from queuer.domain.past_use import Past
from queuer.domain.quantity import MAX_AMOUNT, beyond
from queuer.domain.queue import ROOT, QueueTree
from queuer.domain.workload import Workload
from queuer.solver.records import Admitted, Budget, NodeState, Snapshot

TOLD = 20
"""The most faults of one snapshot that an error lists."""
_NUMBER = Annotated[float, msgspec.Meta(ge=-float(MAX_AMOUNT), le=float(MAX_AMOUNT))]  # nan is neither
_WHOLE = Annotated[int, msgspec.Meta(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
_AMOUNT = Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)]


def problems_of(snapshot: Snapshot, *, now: float, budget: Budget) -> Iterator[FieldProblem]:
    """The faults in the arguments of a decision, those of waiting workloads left out.

    Contradictions are looked for only where all numbers are sound.
    """
    wrong = [
        *_numbers(now, float, at="now"),
        *_numbers(budget, Budget, at="budget"),
        *_numbers(replace(snapshot, pending=(), over_limit=()), Snapshot, at="snapshot"),
    ]
    yield from wrong or _contradictions(snapshot)


def unsound(snapshot: Snapshot) -> InvalidInput:
    """The error about a snapshot that a decision refuses."""
    return InvalidInput(*islice(problems_of(snapshot, now=0.0, budget=Budget()), TOLD))


def check_moment(snapshot: Snapshot, *, now: float, budget: Budget) -> None:
    """Raise InvalidInput where the moment, the budget, or what stands from earlier cycles cannot be used."""
    standing = ("bonds", tuple[Bond, ...]), ("reservations", tuple[Reservation, ...]), ("past", Past)
    wrong = [*_numbers(now, float, at="now"), *_numbers(budget, Budget, at="budget")]
    for name, kind in standing:
        wrong += _numbers(getattr(snapshot, name), kind, at=f"snapshot.{name}")
    if wrong := wrong or list(_standing_twice(snapshot)):
        raise InvalidInput(*wrong[:TOLD])


def faults_of_tree(tree: QueueTree, *, at: str = "snapshot.tree") -> Iterator[FieldProblem]:
    """The faults of the queues: a number, or their order as a tree."""
    yield from _numbers(tree, QueueTree, at=at) or _tree(tree)


def faults_of_node(state: NodeState) -> list[FieldProblem]:
    """The faults of a node."""
    return _numbers(state, NodeState, at="node")


def faults_of_admitted(held: Admitted, *, at: str = "admitted") -> Iterator[FieldProblem]:
    """The faults of an admitted workload."""
    yield from _numbers(held, Admitted, at=at) or _admitted(held, at=at)


def faults_of_workload(workload: Workload) -> Iterator[FieldProblem]:
    """The faults of a waiting workload."""
    yield from _numbers(workload, Workload, at="workload") or _odd_sizes(workload)


# Numbers


def _numbers(value: Any, kind: Any, *, at: str) -> list[FieldProblem]:
    """The first number in a value that is not as its declared type says, or that no arithmetic can use."""
    bounds = _bounded(kind)
    try:
        if bounds is not None:
            msgspec.convert(value, bounds, from_attributes=True)
    except msgspec.ValidationError as error:
        path, message = located(error)
        return [_wrong(at + path, message)]
    return []


@cache
def _bounded(kind: Any) -> Any:
    """A declared type with bounds on every number in it; None = there are no numbers in it."""
    form, parts = get_origin(kind) or kind, get_args(kind)
    if form is int:
        return _WHOLE
    if form is float:
        return _NUMBER
    if form is UnionType:
        inner = _bounded(next(part for part in parts if part is not NoneType))
        return inner and (inner | None)
    if form is Mapping:
        inner = _AMOUNT if parts[-1] is int else _bounded(parts[-1])
        return inner and GenericAlias(dict, (Any, inner))
    if form is tuple:
        inner = _bounded(parts[0]) if parts else None
        return inner and GenericAlias(tuple, (inner, ...))
    if not (isinstance(form, type) and is_dataclass(form)):
        return None
    declared = get_type_hints(form)
    bounds = [(f.name, inner) for f in fields(form) if (inner := _bounded(declared[f.name])) is not None]
    return msgspec.defstruct(form.__name__, bounds, gc=False) if bounds else None


# Contradictions, where all numbers are such


def _contradictions(snapshot: Snapshot) -> Iterator[FieldProblem]:
    yield from faults_of_sums(snapshot)
    yield from _tree(snapshot.tree)
    names: dict[str, Iterable[str]] = {
        "snapshot: uid": list(
            chain((p.workload.uid for p in snapshot.pending), (a.workload.uid for a in snapshot.admitted))
        ),
        "snapshot.nodes: name": [state.node.name for state in snapshot.nodes],
        "snapshot.flavors: name": [flavor.name for flavor in snapshot.flavors],
        "snapshot.topology.keys": snapshot.topology.keys,
    }
    for at, there in names.items():
        yield from _twice(there, at=at)
    yield from _standing_twice(snapshot)
    for i, held in enumerate(snapshot.admitted):
        yield from _admitted(held, at=f"snapshot.admitted[{i}]")


def _standing_twice(snapshot: Snapshot) -> Iterator[FieldProblem]:
    yield from _twice((bond.uid for bond in snapshot.bonds), at="snapshot.bonds: uid")
    yield from _twice((held.uid for held in snapshot.reservations), at="snapshot.reservations: uid")


def faults_of_sums(snapshot: Snapshot) -> Iterator[FieldProblem]:
    """Resources of which all nodes together have more than 64 bits can sum."""
    for resource, amount in beyond(state.node.allocatable for state in snapshot.nodes).items():
        hint = "mend what reports it, or leave nodes out"
        yield _wrong(f"snapshot.nodes: allocatable.{resource}", f"{amount} together is beyond 2^62", hint)


def _tree(tree: QueueTree) -> Iterator[FieldProblem]:
    if ROOT not in tree or any(queue.path != path for path, queue in tree.queues.items()):
        hint = "build it with QueueTree.of"
        yield _wrong("snapshot.tree", "root is missing, or a queue is not under its own path", hint)
        return
    yield from tree.problems()


def _odd_sizes(workload: Workload) -> Iterator[FieldProblem]:
    if not workload.pod_sets:
        yield _wrong("workload.pod_sets", "is empty")
    yield from _twice((p.name for p in workload.pod_sets), at="workload.pod_sets: name")
    for i, p in enumerate(workload.pod_sets):
        at = f"workload.pod_sets[{i}]"
        if p.count < 1:
            yield _wrong(f"{at}.count", f"{p.count} is less than 1", "leave the pod set out")
        if p.min_count is not None and not 1 <= p.min_count <= p.count:
            yield _wrong(f"{at}.min_count", f"{p.min_count} is not between 1 and {p.count}")
        for resource, amount in p.requests.items():
            if amount * p.count > MAX_AMOUNT:
                yield _wrong(f"{at}.requests.{resource}", f"{p.count} times {amount} is beyond 2^62")


def _admitted(held: Admitted, *, at: str) -> Iterator[FieldProblem]:
    """Of what it asked for only numbers matter: it runs, and may be malformed where it was started beside the queue."""
    if held.gone_by is not None and not held.releasing:
        yield _wrong(f"{at}.gone_by", "it is not releasing", "say so only of what is on its way out")
    names = {p.name for p in held.workload.pod_sets}
    for field, there in (("counts", held.counts), ("flavors", held.flavors)):
        for name in sorted(names - there.keys()):
            yield _wrong(f"{at}.{field}", f"pod set {name!r} is missing", "give it for every pod set")
    for i, loose in enumerate(held.unbound):
        if loose.pod_set not in names or loose.count < 0:
            yield _wrong(f"{at}.unbound[{i}]", "it is none of its pod sets, or less than 0 pods of one")


def _twice(names: Iterable[str], *, at: str) -> Iterator[FieldProblem]:
    there = tuple(names)
    if len(set(there)) == len(there):  # counting is slow, and asked for every record
        return
    for name, times in Counter(there).items():
        if times > 1:
            yield _wrong(at, f"{name!r} is there {times} times", "give it once")


def _wrong(field: str, message: str, hint: str = "no program of this version writes that") -> FieldProblem:
    return FieldProblem(field=field, message=message, hint=hint)

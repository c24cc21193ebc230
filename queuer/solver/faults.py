"""Whether what is given can be decided on at all, and what is wrong with it, by field.

A decision looks at each record once, when `arrays` take it over; a file is looked at whole. What is wrong with a
waiting workload sets that one aside; anything else refuses the snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import chain, islice
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from queuer.domain.assignments import Bond, Reservation
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.past import Past
from queuer.domain.queue import ROOT, QueueTree
from queuer.domain.workload import Workload
from queuer.solver.records import Admitted, Budget, NodeState, Snapshot

MOST_AMOUNT = 2**62
"""Beyond which neither an amount nor a time can be: sums must stay within 64 bits."""
TOLD = 20
"""Faults of one snapshot that are told at most."""


def problems_of(snapshot: Snapshot, *, now: float, budget: Budget) -> Iterator[FieldProblem]:
    """What is wrong with the arguments of a decision, waiting workloads aside: numbers, and what takes these for
    granted only where none is wrong.
    """
    wrong = [
        *_numbers(now, float, at="now"),
        *_numbers(budget, Budget, at="budget"),
        *_numbers(replace(snapshot, pending=(), barred=()), Snapshot, at="snapshot"),
    ]
    yield from wrong or _contradictions(snapshot)


def unsound(snapshot: Snapshot) -> InvalidInput:
    """What is wrong with a snapshot that a decision refuses."""
    return InvalidInput(*islice(problems_of(snapshot, now=0.0, budget=Budget()), TOLD))


def check_moment(snapshot: Snapshot, *, now: float, budget: Budget) -> None:
    """Raise InvalidInput where the moment, the budget, or what stands from earlier cycles cannot be reckoned with."""
    standing = ("bonds", tuple[Bond, ...]), ("reservations", tuple[Reservation, ...]), ("past", Past)
    wrong = [*_numbers(now, float, at="now"), *_numbers(budget, Budget, at="budget")]
    for name, kind in standing:
        wrong += _numbers(getattr(snapshot, name), kind, at=f"snapshot.{name}")
    if wrong := wrong or list(_standing_twice(snapshot)):
        raise InvalidInput(*wrong[:TOLD])


def faults_of_tree(tree: QueueTree, *, at: str = "snapshot.tree") -> Iterator[FieldProblem]:
    """Where the queues make no tree, or what they say cannot be reckoned with."""
    yield from _numbers(tree, QueueTree, at=at) or _tree(tree)


def faults_of_node(state: NodeState) -> list[FieldProblem]:
    """What of a node cannot be reckoned with."""
    return _numbers(state, NodeState, at="node")


def faults_of_admitted(held: Admitted, *, at: str = "admitted") -> Iterator[FieldProblem]:
    """What of an admitted workload cannot be reckoned with."""
    yield from _numbers(held, Admitted, at=at) or _admitted(held, at=at)


def faults_of_workload(workload: Workload) -> Iterator[FieldProblem]:
    """What is wrong with a waiting workload."""
    yield from _numbers(workload, Workload, at="workload") or _odd_sizes(workload)


# Numbers

Check = Callable[[Any], Iterable[tuple[str, str, str]]]
"""Finds numbers that no arithmetic can use: where in the value, what is wrong, what to do."""


def _numbers(value: Any, kind: Any, *, at: str) -> list[FieldProblem]:
    """What in a value is no such number as its declared type says, or one that no arithmetic can use."""
    check = _check_of(kind)
    return [] if check is None else [_wrong(at + where, what, fix) for where, what, fix in check(value)]


@cache
def _check_of(kind: Any) -> Check | None:
    """The check of a declared type; None = there are no numbers in it. Paths are made only of what is wrong."""
    form, parts = get_origin(kind) or kind, get_args(kind)
    if form is UnionType:
        inner = _check_of(next(part for part in parts if part is not NoneType))
        return inner and (lambda value: () if value is None else inner(value))
    if form is int:
        return _odd_whole
    if form is float:
        return _odd_number
    if form is Mapping:
        of_value = _odd_amount if parts[-1] is int else _check_of(parts[-1])
        return of_value and (
            lambda value: [
                (f".{k}{at}", what, fix) for k, v in value.items() for at, what, fix in of_value(v)
            ]
        )
    if form is tuple:
        of_item = _check_of(parts[0]) if parts else None
        return of_item and (
            lambda value: [
                (f"[{i}]{at}", what, fix) for i, v in enumerate(value) for at, what, fix in of_item(v)
            ]
        )
    if not (isinstance(form, type) and is_dataclass(form)):
        return None
    declared = get_type_hints(form)
    checks = [(f.name, check) for f in fields(form) if (check := _check_of(declared[f.name]))]
    return lambda value: [
        (f".{name}{at}", what, fix) for name, check in checks for at, what, fix in check(getattr(value, name))
    ]


def _odd_number(value: object) -> Iterable[tuple[str, str, str]]:
    """nan is no number."""
    if isinstance(value, int | float) and abs(value) <= MOST_AMOUNT:
        return ()
    return (("", f"{value!r} is no number between -2^62 and 2^62", "give a number"),)


def _odd_whole(value: object) -> Iterable[tuple[str, str, str]]:
    """true and 1.0 equal 1 and are no whole numbers."""
    if type(value) is int and abs(value) <= MOST_AMOUNT:
        return ()
    return (("", f"{value!r} is no whole number between -2^62 and 2^62", "give a whole number"),)


def _odd_amount(value: object) -> Iterable[tuple[str, str, str]]:
    if type(value) is int and value < 0:
        return (("", f"{value} is less than 0", "give 0 or more"),)
    return _odd_whole(value)


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
    totals: Counter[str] = Counter()
    for state in snapshot.nodes:
        totals.update(state.node.allocatable)
    for resource, amount in totals.items():
        if amount > MOST_AMOUNT:
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
            if amount * p.count > MOST_AMOUNT:
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

"""Whether what is given can be decided on at all, and what is wrong with it, by field.

What is wrong with a waiting workload sets that one aside. Files are looked at whole before; a decision looks only for
what would give a wrong plan instead of none. What gives an error instead tells itself, see `refusing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from functools import cache
from itertools import islice
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.past import Past
from queuer.domain.queue import ROOT, QueueTree
from queuer.domain.workload import Workload
from queuer.solver.records import Admitted, Bond, Budget, Reservation, Snapshot

MOST_AMOUNT = 2**62
"""Beyond which neither an amount nor a time can be: sums must stay within 64 bits."""
TOLD = 20
"""Faults of one snapshot that are told at most."""


def problems_of(snapshot: Snapshot, *, now: float, budget: Budget) -> Iterator[FieldProblem]:
    """What is wrong with the arguments of a decision."""
    yield from _numbers(now, float, at="now")
    yield from _numbers(budget, Budget, at="budget")
    yield from _faults_of(snapshot)


def check_moment(snapshot: Snapshot, *, now: float, budget: Budget) -> None:
    """Raise InvalidInput where the moment, the budget, or what stands from earlier cycles cannot be reckoned with."""
    standing = ("bonds", tuple[Bond, ...]), ("reservations", tuple[Reservation, ...]), ("past", Past)
    wrong = [*_numbers(now, float, at="now"), *_numbers(budget, Budget, at="budget")]
    for name, kind in standing:
        wrong += _numbers(getattr(snapshot, name), kind, at=f"snapshot.{name}")
    if wrong:
        raise InvalidInput(*wrong[:TOLD])


def check_tree(snapshot: Snapshot) -> None:
    """Raise InvalidInput where the queues make no tree, or what they say cannot be reckoned with."""
    if any(_numbers(snapshot.tree, QueueTree, at="")) or any(_tree(snapshot.tree)):
        raise unsound(snapshot)


def unsound(snapshot: Snapshot) -> InvalidInput:
    """What is wrong with a snapshot that a decision refuses."""
    return InvalidInput(*islice(_faults_of(snapshot), TOLD))


@contextmanager
def refusing(snapshot: Snapshot) -> Iterator[None]:
    """An error inside is the fault of what was given, and told by its fields, if any is wrong; else it is the
    decision's own and stays as it is.
    """
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        refusal = unsound(snapshot)
        if not refusal.problems:
            raise
        raise refusal from error


def _faults_of(snapshot: Snapshot) -> Iterator[FieldProblem]:
    """What is wrong with a snapshot, waiting workloads aside: numbers, and what takes these for granted only where none
    is wrong.
    """
    wrong = tuple(_numbers(replace(snapshot, pending=()), Snapshot, at="snapshot"))
    yield from wrong or _contradictions(snapshot)


def faults_of_sums(snapshot: Snapshot) -> Iterator[FieldProblem]:
    """Resources of which all nodes together have more than 64 bits can sum."""
    totals: Counter[str] = Counter()
    for state in snapshot.nodes:
        totals.update(state.node.allocatable)
    for resource, amount in totals.items():
        if amount > MOST_AMOUNT:
            hint = "mend what reports it, or leave nodes out"
            yield _wrong(f"snapshot.nodes: allocatable.{resource}", f"{amount} together is beyond 2^62", hint)


def faults_of_workload(workload: Workload) -> Iterator[FieldProblem]:
    """What is wrong with a waiting workload: numbers, and what takes these for granted only where none is wrong."""
    wrong = tuple(_numbers(workload, Workload, at="workload"))
    yield from wrong or _odd_sizes(workload)


def countable(workload: Workload) -> bool:
    """Whether its times, its priority and its sizes are numbers that arithmetic can use; amounts are whole, too."""
    times = (workload.submitted, workload.max_runtime or 0.0, workload.estimate or 0.0)
    sizes = [n for p in workload.pod_sets for n in (p.count, p.min_count or 0)]
    amounts = (n for p in workload.pod_sets for n in p.requests.values())
    return (
        all(map(_is_number, times))
        and all(map(_is_whole, (workload.priority, *sizes)))
        and all(type(amount) is int for amount in amounts)
    )


def reckonable(held: Admitted) -> bool:
    """Whether what an admitted workload holds, and since when, are numbers that arithmetic can use, none below 0."""
    times = (held.since, held.checkpoint or 0.0, held.gone_by or 0.0, held.expected_end or 0.0)
    counts = [*held.counts.values(), *(loose.count for loose in held.unbound)]
    amounts = [n for there in held.bound.values() for n in there.values()]
    asked = [n for p in held.workload.pod_sets for n in p.requests.values()]
    return (
        countable(held.workload)
        and (held.releasing or held.gone_by is None)
        and all(map(_is_number, times))
        and all(map(_is_whole, (held.evicted, *counts)))
        and all(type(n) is int for n in amounts)
        and min((*counts, *amounts, *asked), default=0) >= 0
    )


# Numbers


def _is_number(number: object) -> bool:
    """Whether arithmetic can use it; nan is none."""
    return isinstance(number, int | float) and abs(number) <= MOST_AMOUNT


def _is_whole(number: object) -> bool:
    """The same of an integer. true and 1.0 equal 1 and are none."""
    return type(number) is int and _is_number(number)


def _numbers(value: Any, kind: Any, *, at: str) -> Iterator[FieldProblem]:
    """What is no such number as is declared, or one that no arithmetic can use, and amounts below 0. `kind`: the
    declared type.
    """
    if value is None and NoneType in get_args(kind):
        return
    form, parts = _form(kind)
    if form in (int, float):
        fits, what = (_is_whole, "whole number") if form is int else (_is_number, "number")
        if not fits(value):
            yield _wrong(at, f"{value!r} is no {what} between -2^62 and 2^62", f"give a {what}")
    elif form is Mapping:
        for key, item in value.items():
            if isinstance(item, int) and item < 0:
                yield _wrong(f"{at}.{key}", f"{item} is less than 0", "give 0 or more")
            yield from _numbers(item, parts[-1], at=f"{at}.{key}")
    elif form is tuple:
        for i, item in enumerate(value):
            yield from _numbers(item, parts[0], at=f"{at}[{i}]")
    elif isinstance(form, type) and is_dataclass(form):
        for name, declared in _declared(form).items():
            yield from _numbers(getattr(value, name), declared, at=f"{at}.{name}")


@cache
def _form(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """What a declared type is when it is not None, and of what parts."""
    if get_origin(kind) is UnionType:
        kind = next(part for part in get_args(kind) if part is not NoneType)
    return get_origin(kind) or kind, get_args(kind)


_declared = cache(get_type_hints)


# Contradictions, where all numbers are such


def _contradictions(snapshot: Snapshot) -> Iterator[FieldProblem]:
    yield from faults_of_sums(snapshot)
    yield from _tree(snapshot.tree)
    names: dict[str, Iterable[str]] = {
        "snapshot: uid": [
            *(p.workload.uid for p in snapshot.pending),
            *(a.workload.uid for a in snapshot.admitted),
        ],
        "snapshot.nodes: name": [state.node.name for state in snapshot.nodes],
        "snapshot.flavors: name": [flavor.name for flavor in snapshot.flavors],
        "snapshot.topology.keys": snapshot.topology.keys,
        "snapshot.bonds: uid": [bond.uid for bond in snapshot.bonds],
        "snapshot.reservations: uid": [held.uid for held in snapshot.reservations],
    }
    for at, there in names.items():
        yield from _twice(there, at=at)
    for i, held in enumerate(snapshot.admitted):
        yield from _admitted(held, at=f"snapshot.admitted[{i}]")


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
    for name, times in Counter(names).items():
        if times > 1:
            yield _wrong(at, f"{name!r} is there {times} times", "give it once")


def _wrong(field: str, message: str, hint: str = "no program of this version writes that") -> FieldProblem:
    return FieldProblem(field=field, message=message, hint=hint)

"""What differs between two snapshots, small enough to be sent each cycle.

A tuple of records is told as runs: parts of the tuple before, by position, and records that are new there. Records that
are taken over are the same objects afterwards, so that arrays can follow by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from queuer.solver.problem import Admitted, NodeState, Pending, Snapshot

Run = slice | tuple[Any, ...]
"""Positions in the tuple before, or new records."""


def _node(state: NodeState) -> str:
    return state.node.name


def _uid(record: Admitted | Pending) -> str:
    return record.workload.uid


_KEYS: Mapping[str, Callable[[Any], str]] = {"nodes": _node, "admitted": _uid, "pending": _uid}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """From one snapshot to the next: `runs` of nodes, admitted and pending, `others`: new values of other fields."""

    runs: Mapping[str, tuple[Run, ...]]
    others: Mapping[str, Any]

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Difference:
        """What makes `after` of `before`."""
        others = {}
        for name in (f.name for f in fields(Snapshot) if f.name not in _KEYS):
            old, new = getattr(before, name), getattr(after, name)
            if old is not new and old != new:
                others[name] = new
        runs = {name: _runs(getattr(before, name), getattr(after, name), key) for name, key in _KEYS.items()}
        return cls(runs=runs, others=others)

    def after(self, before: Snapshot) -> Snapshot:
        """The later snapshot."""
        values: dict[str, Any] = dict(self.others)
        for name, runs in self.runs.items():
            values[name] = _joined(getattr(before, name), runs)
        return replace(before, **values)


def _runs(before: Sequence[Any], after: Sequence[Any], key: Callable[[Any], str]) -> tuple[Run, ...]:
    if before is after:
        return (slice(0, len(before)),)
    at = {key(record): i for i, record in enumerate(before)}
    found: list[Run] = []
    start = stop = 0
    new: list[Any] = []
    for record in after:
        i = at.get(key(record), -1)
        if i < 0 or (before[i] is not record and before[i] != record):
            new.append(record)
            continue
        if i != stop or new or start == stop:
            _close(found, start, stop, new)
            start, stop, new = i, i, []
        stop += 1
    _close(found, start, stop, new)
    return tuple(found)


def _close(found: list[Run], start: int, stop: int, new: list[Any]) -> None:
    """End a run of old records and the new ones that came after it."""
    if start < stop:
        found.append(slice(start, stop))
    if new:
        found.append(tuple(new))


def _joined(before: tuple[Any, ...], runs: Sequence[Run]) -> tuple[Any, ...]:
    found: list[Any] = []
    for run in runs:
        found.extend(before[run] if isinstance(run, slice) else run)
    return tuple(found)

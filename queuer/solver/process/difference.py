"""What differs between two snapshots, small enough to be sent each cycle.

Records that are taken over are the same objects afterwards, so that arrays can follow by identity.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from queuer.solver.records import Admitted, NodeState, Pending, Snapshot

Entries = tuple["array[int]", tuple[Any, ...]]
"""A tuple of records: positions in the tuple before, -1 = the next of these new ones."""


def _name(state: NodeState) -> str:
    return state.node.name


def _uid(record: Admitted | Pending) -> str:
    return record.workload.uid


_KEYS: Mapping[str, Callable[[Any], str]] = {"nodes": _name, "admitted": _uid, "pending": _uid}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """From one snapshot to the next, by field: `rows` of nodes, admitted and pending; `others`: new values."""

    rows: Mapping[str, Entries]
    others: Mapping[str, Any]

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> Difference:
        """What makes `after` of `before`."""
        rows, others = {}, {}
        for name in (f.name for f in fields(Snapshot)):
            old, new = getattr(before, name), getattr(after, name)
            if old is new:
                continue
            if name in _KEYS:
                rows[name] = _rows(old, new, _KEYS[name])
            elif old != new:
                others[name] = new
        return cls(rows=rows, others=others)

    def after(self, before: Snapshot) -> Snapshot:
        """The later snapshot."""
        rows: dict[str, Any] = {name: _joined(getattr(before, name), *r) for name, r in self.rows.items()}
        return replace(before, **rows, **self.others)


def _rows(before: Sequence[Any], after: Sequence[Any], key: Callable[[Any], str]) -> Entries:
    at = {key(record): i for i, record in enumerate(before)}
    kept, new = array("q"), []
    for record in after:
        i = at.get(key(record), -1)
        if i < 0 or (before[i] is not record and before[i] != record):
            new.append(record)
            i = -1
        kept.append(i)
    return kept, tuple(new)


def _joined(before: Sequence[Any], kept: array[int], new: Sequence[Any]) -> tuple[Any, ...]:
    fresh = iter(new)
    return tuple(next(fresh) if i < 0 else before[i] for i in kept)

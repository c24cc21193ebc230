"""What the solver process and its parent say to each other: pickles, as both ends are the same program, each after a
mark and its length. Of a snapshot that follows another, records that did not change are told by their number there.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from queuer.domain.errors import QueuerError
from queuer.domain.queue import QueueTree
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Plan, Snapshot

HEADER = struct.Struct(">4sQ")
MARK = b"QUER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`budget`: None = the snapshot is only to be taken over."""

    snapshot: Snapshot
    now: float = 0.0
    seed: int = 0
    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`refused`: what was asked cannot be decided on, by any process; `error`: met instead of a plan; none of these =
    the snapshot was taken over.
    """

    plan: Plan | None = None
    refused: QueuerError | None = None
    error: str = ""


def length_of(header: bytes) -> int:
    """Bytes of the body that follows. Raises ValueError where the header is none."""
    mark, length = HEADER.unpack(header)
    if mark != MARK:
        raise ValueError("bytes that are no message")
    return int(length)


def pack(said: object, *, known: Snapshot | None = None) -> bytes:
    """As a message. `known`: the snapshot that the other end was told last."""
    buffer = io.BytesIO()
    _Pickler(buffer, known).dump(said)
    body = buffer.getvalue()
    return HEADER.pack(MARK, len(body)) + body


def unpack(body: bytes, *, known: Snapshot | None = None) -> Any:
    """What was said. Records of `known` that did not change are the same objects in it, so that arrays can follow by
    identity. Raises whatever reading garbage raises.
    """
    return _Unpickler(io.BytesIO(body), known).load()


_KEYS: Mapping[type, Callable[[Any], object]] = {
    QueueTree: lambda _: QueueTree,
    NodeState: lambda state: (NodeState, state.node.name),
    Admitted: lambda admitted: (Admitted, admitted.workload.uid),
    Pending: lambda pending: (Pending, pending.workload.uid),
}


def _records(snapshot: Snapshot | None) -> tuple[Any, ...]:
    """What is told by its number."""
    if snapshot is None:
        return ()
    return (snapshot.tree, *snapshot.nodes, *snapshot.admitted, *snapshot.pending, *snapshot.barred)


def freeze(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A read-only mapping, as unpickled."""
    return MappingProxyType(mapping)


class _Pickler(pickle.Pickler):
    """Read-only mappings, which pickle refuses, are made again of dicts."""

    def __init__(self, buffer: io.BytesIO, known: Snapshot | None) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._known = {_KEYS[type(r)](r): (i, r) for i, r in enumerate(_records(known))}

    def reducer_override(self, thing: Any) -> Any:
        return (freeze, (dict(thing),)) if type(thing) is MappingProxyType else NotImplemented

    def persistent_id(self, thing: Any) -> int | None:
        key = _KEYS.get(type(thing))
        number, record = self._known.get(key(thing), (None, None)) if key else (None, None)
        return number if record is thing or record == thing else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, known: Snapshot | None) -> None:
        super().__init__(buffer)
        self._known = _records(known)

    def persistent_load(self, number: int) -> Any:
        return self._known[number]

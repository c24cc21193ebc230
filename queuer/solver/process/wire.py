"""Messages between a child process and its parent: a mark, a length, a pickle, as both ends are the same program.

A decision's snapshot mostly repeats the one before. A record that did not change travels as its number there and
arrives as the object that the child has already. So the child's arrays follow by identity.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, BinaryIO, ClassVar, Protocol

from queuer.domain.errors import QueuerError
from queuer.domain.estimates import StartRange
from queuer.domain.queue import QueueTree
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Plan, Snapshot

HEADER = struct.Struct(">4sQ")
MARK = b"QUER"


class Request(Protocol):
    """A question to a child, which answers itself there. `renews`: most of what the child keeps is replaced by it."""

    @property
    def renews(self) -> bool: ...

    def answer(self, kept: Any) -> Any:
        """The reply's value. `kept`: what the child's target names. A QueuerError is raised in the parent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRequest:
    """A decision. `budget`: None = the child only gets to know the snapshot."""

    renews: ClassVar[bool] = False
    snapshot: Snapshot
    now: float = 0.0
    seed: int = 0
    budget: Budget | None = None

    def answer(self, kept: Callable[..., Plan]) -> Plan | None:
        """The plan. A target that works out things about snapshots in advance has a method `follow`."""
        if self.budget is not None:
            return kept(self.snapshot, now=self.now, seed=self.seed, budget=self.budget)
        if follow := getattr(kept, "follow", None):
            follow(self.snapshot)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRequest:
    """When waiting gangs will start; the target is `queuer.sim.forecast:forecast`."""

    renews: ClassVar[bool] = False
    snapshot: Snapshot
    now: float
    seed: int

    def answer(self, kept: Callable[..., dict[str, StartRange]]) -> dict[str, StartRange]:
        """Start ranges by uid."""
        return kept(self.snapshot, now=self.now, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`refused`: no process can answer this question; `error`: a fault that was met instead of a value."""

    value: Any = None
    refused: QueuerError | None = None
    error: str = ""


def length_of(header: bytes) -> int:
    """Bytes of the body that follows. Raises ValueError where the header is none."""
    mark, length = HEADER.unpack(header)
    if mark != MARK:
        raise ValueError("bytes that are no message")
    return int(length)


def receive(pipe: BinaryIO) -> bytes:
    """The body of the next message. Raises EOFError, also where the other end stops in the middle of one."""
    head = pipe.read(HEADER.size)
    if len(head) < HEADER.size:
        raise EOFError
    length = length_of(head)
    body = pipe.read(length)
    if len(body) < length:
        raise EOFError
    return body


def pack(said: object, *, known: Snapshot | None = None) -> bytes:
    """The object as a message. `known`: the snapshot that the other end was told last."""
    buffer = io.BytesIO()
    _Pickler(buffer, known).dump(said)
    body = buffer.getvalue()
    return HEADER.pack(MARK, len(body)) + body


def unpack(body: bytes, *, known: Snapshot | None = None) -> Any:
    """The object that was packed, with the records of `known` that did not change. Garbage raises any exception."""
    return _Unpickler(io.BytesIO(body), known).load()


_KEYS: Mapping[type, Callable[[Any], object]] = {
    QueueTree: lambda _: QueueTree,
    NodeState: lambda state: (NodeState, state.node.name),
    Admitted: lambda admitted: (Admitted, admitted.workload.uid),
    Pending: lambda pending: (Pending, pending.workload.uid),
}


def _records(snapshot: Snapshot | None) -> tuple[Any, ...]:
    """The records that travel as numbers."""
    if snapshot is None:
        return ()
    return (snapshot.tree, *snapshot.nodes, *snapshot.admitted, *snapshot.pending, *snapshot.over_limit)


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

"""Messages between the solver process and its parent: a mark, a length, a body.

Requests are pickles, as both ends are the same program; read-only mappings, which pickle refuses, travel as dicts.
Answers are MessagePack, read by declared type: a process that went wrong may say anything.
"""

from __future__ import annotations

import io
import pickle
import struct
from copyreg import dispatch_table
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from queuer.solver.process.difference import Difference
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.stored import ShortPlan

HEADER = struct.Struct(">4sQ")
MARK = b"QUER"
MOST_BYTES = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`told`: the snapshot, or what differs from the one before. `budget`: None = it is only to be taken over."""

    told: Snapshot | Difference
    now: float = 0.0
    seed: int = 0
    budget: Budget | None = None


def length_of(header: bytes) -> int:
    """Bytes of the body that follows. Raises ValueError where the header is none."""
    mark, length = HEADER.unpack(header)
    if mark != MARK or length > MOST_BYTES:
        raise ValueError("bytes that are no message")
    return int(length)


def pack(request: Request) -> bytes:
    """A request as a message."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**dispatch_table, MappingProxyType: _plain}
    pickler.dump(request)
    return _framed(buffer.getvalue())


def unpack(body: bytes) -> Request:
    """The request in a message of one's own parent."""
    request: Request = pickle.loads(body)
    return request


def pack_answer(plan: Plan | None = None, *, error: str = "") -> bytes:
    """An answer as a message: a plan, or the error met instead; neither = the snapshot was taken over."""
    short = None if plan is None else ShortPlan.of(plan)
    return _framed(msgspec.msgpack.encode((short, error), enc_hook=dict))


def unpack_answer(body: bytes) -> tuple[Plan | None, str]:
    """The plan in a message, and the error. Raises whatever reading garbage raises."""
    short, error = msgspec.msgpack.decode(body, type=tuple[ShortPlan | None, str])
    return None if short is None else short.whole(), error


def freeze(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A read-only mapping, as unpickled."""
    return MappingProxyType(mapping)


def _plain(mapping: MappingProxyType[Any, Any]) -> tuple[Any, tuple[dict[Any, Any]]]:
    return freeze, (dict(mapping),)


def _framed(body: bytes) -> bytes:
    return HEADER.pack(MARK, len(body)) + body

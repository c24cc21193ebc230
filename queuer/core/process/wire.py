"""Messages between the solver process and its parent: a mark, a length, a body.

Questions are pickles, as both ends are the same program; read-only mappings, which pickle refuses, travel as dicts.
Answers are MessagePack, read by declared type: a process that went wrong may say anything.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Mapping
from copyreg import dispatch_table
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import msgspec

from queuer.core.process.difference import Difference
from queuer.core.records import Budget, Plan, Snapshot
from queuer.domain.reasons import Explanation

HEADER = struct.Struct(">4sQ")
MARK = b"QUER"
MOST_BYTES = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`told`: the snapshot, or what differs from the one before. `budget`: None = it is only to be taken over."""

    told: Snapshot | Difference
    now: float = 0.0
    seed: int = 0
    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan, or the `error` met instead; neither = the snapshot was taken over.

    On the wire the plan has no explanations: `reasons` are those, each once, `reason_of` the index of each uid's.
    """

    plan: Plan | None = None
    reasons: tuple[Explanation, ...] = ()
    reason_of: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""


def length_of(header: bytes) -> int:
    """Bytes of the body that follows. Raises ValueError where the header is none."""
    mark, length = HEADER.unpack(header)
    if mark != MARK or length > MOST_BYTES:
        raise ValueError("bytes that are no message")
    return int(length)


def pack(question: Question) -> bytes:
    """A question as a message."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**dispatch_table, MappingProxyType: _plain}
    pickler.dump(question)
    return _framed(buffer.getvalue())


def unpack(body: bytes) -> Question:
    """The question in a message of one's own parent."""
    question: Question = pickle.loads(body)
    return question


def pack_answer(plan: Plan | None = None, *, error: str = "") -> bytes:
    """An answer as a message."""
    answer = Answer(error=error)
    if plan is not None:
        reasons = {id(reason): reason for reason in plan.explanations.values()}
        index = {key: i for i, key in enumerate(reasons)}
        reason_of = {uid: index[id(reason)] for uid, reason in plan.explanations.items()}
        short = replace(plan, explanations={})
        answer = Answer(plan=short, reasons=tuple(reasons.values()), reason_of=reason_of)
    return _framed(msgspec.msgpack.encode(answer, enc_hook=dict))


def unpack_answer(body: bytes) -> Answer:
    """The answer in a message, its plan complete. Raises whatever reading garbage raises."""
    answer = msgspec.msgpack.decode(body, type=Answer)
    if answer.plan is None:
        return answer
    told = {uid: answer.reasons[i] for uid, i in answer.reason_of.items()}
    return Answer(plan=replace(answer.plan, explanations=told))


def freeze(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A read-only mapping, as unpickled."""
    return MappingProxyType(mapping)


def _plain(mapping: MappingProxyType[Any, Any]) -> tuple[Any, tuple[dict[Any, Any]]]:
    return freeze, (dict(mapping),)


def _framed(body: bytes) -> bytes:
    return HEADER.pack(MARK, len(body)) + body

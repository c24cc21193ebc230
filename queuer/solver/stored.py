"""A decision in a file: what it was given and what it answered, so that it can be run again and compared.

One line of text (format and version), then zlib over MessagePack of the records, by field name. A record that gains
a field with a default needs no new version; a change of what a record means, or of what is compared, does. From
version 2 on replay must also give again how far each pass came, from version 3 on why gangs were deferred; from version
4 on `displaced_by` names one gang, no whole chain, also of what runs. Older ones are still read; what they do not say
is not compared.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.sound import problems_of

VERSION, OLDEST = 4, 1
"""Written, and still read."""
MOST_BYTES = 2**28
"""Of a cycle, unpacked."""
PIECE = 2**24
"""Bytes unpacked at once."""
_MARK = b"queuer-cycle "
_WHERE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCycle:
    """The arguments of one decision and its plan; None = not even a greedy plan was sound.

    How far the passes came is in `plan.stats.passes`. They are bounded by deterministic time, so only one thing that
    the clock did matters: a solver process that was given up (`fallback`), in whose place greedy answered.
    """

    snapshot: Snapshot
    now: float
    seed: int
    budget: Budget
    plan: Plan | None


def encode(cycle: StoredCycle) -> bytes:
    """The file's content."""
    body = msgspec.msgpack.encode(cycle, enc_hook=dict)
    return _MARK + b"%d\n" % VERSION + zlib.compress(body)


def decode(data: bytes, *, name: str = "file") -> StoredCycle:
    """The inverse of `encode`. Raises InvalidInput naming `name` and, where one is wrong, the field."""
    head = data[:64].partition(b"\n")[0]
    version = head.removeprefix(_MARK)
    if not head.startswith(_MARK) or not version.isdigit():
        raise _wrong(name, "is not a stored cycle", "its first line is `queuer-cycle` and a version")
    if not OLDEST <= int(version) <= VERSION:
        hint = f"this program reads versions {OLDEST} to {VERSION}; use the version of Queuer that wrote the file"
        raise _wrong(name, f"has version {int(version)}", hint)
    body = _unpacked(data[len(head) + 1 :], name=name)
    try:
        cycle = msgspec.msgpack.decode(body, type=StoredCycle)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError included
        at = _WHERE.search(str(error))
        field = f"{name}: {at['path']}" if at else name
        raise _wrong(field, _WHERE.sub("", str(error)), "the file was not written by this format") from error
    for problem in problems_of(cycle.snapshot, now=cycle.now, budget=cycle.budget):
        raise InvalidInput(replace(problem, field=f"{name}: {problem.field}"))
    return cycle


def _unpacked(data: bytes, *, name: str) -> bytes:
    """The records, counted before they are kept."""
    inflate, body, rest = zlib.decompressobj(), bytearray(), data
    try:
        while rest and not inflate.eof:
            body += inflate.decompress(rest, PIECE)
            rest = inflate.unconsumed_tail
            if len(body) > MOST_BYTES:
                raise _wrong(name, f"unpacks to more than {MOST_BYTES} bytes", "no cycle is that large")
    except zlib.error as error:
        raise _wrong(name, f"is damaged: {error}", "copy it again") from error
    if not inflate.eof:
        raise _wrong(name, f"is cut off after {len(data)} bytes", "copy it again")
    if inflate.unused_data:
        raise _wrong(name, f"has {len(inflate.unused_data)} bytes after its end", "copy it again")
    return bytes(body)


def _wrong(field: str, message: str, hint: str) -> InvalidInput:
    return InvalidInput(FieldProblem(field=field, message=message, hint=hint))


def again(cycle: StoredCycle) -> Plan:
    """The decision made anew; by greedy where the plan, if any, came from greedy because of the clock."""
    budget = cycle.budget
    given_up = cycle.plan is None or bool(cycle.plan.stats.fallback)
    if given_up or budget.wall <= 0:
        budget = replace(budget, deterministic=0.0)
    return decide(cycle.snapshot, now=cycle.now, seed=cycle.seed, budget=budget)


def difference(stored: Plan, made: Plan) -> str:
    """The first place at which two plans differ, as `field: stored, made`; empty where they are the same.

    Times of phases are not compared, nor what became of the solver process, nor how far the passes came and why gangs
    were deferred where that was not told.
    """
    told = replace(stored.stats, phases={}, fallback="")
    if stored.stats.fallback:
        told = replace(told, status=made.stats.status, note=made.stats.note)
    if stored.stats.passes is None:
        told = replace(told, passes=made.stats.passes, proved_in_place=made.stats.proved_in_place)
    if stored.stats.deferred and not stored.stats.causes:
        told = replace(told, causes=made.stats.causes)
    got = replace(made.stats, phases={})
    return _differ("", _plain(replace(stored, stats=told)), _plain(replace(made, stats=got)))


def _plain(plan: Plan) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(plan, enc_hook=dict))


def _differ(at: str, left: Any, right: Any) -> str:
    if left == right:
        return ""
    if isinstance(left, dict) and isinstance(right, dict):
        parts = [(f"{at}.{key}" if at else key, key) for key in dict.fromkeys([*left, *right])]
        return next(
            _differ(path, left.get(key), right.get(key))
            for path, key in parts
            if left.get(key) != right.get(key)
        )
    if isinstance(left, list) and isinstance(right, list):
        if len(left) == len(right):
            return next(
                _differ(f"{at}[{i}]", *both)
                for i, both in enumerate(zip(left, right, strict=True))
                if both[0] != both[1]
            )
        return f"{at}: {len(left)} entries, {len(right)}"
    return f"{at}: {_short(left)}, {_short(right)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."

"""A decision in a file: what it was given and what it answered, so that it can be made again and compared.

One line of text (format and version), then zlib over MessagePack of the records, by field name. A record that gains
a field with a default needs no new version; a new meaning of a record, or of a comparison, does.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import msgspec

from queuer.domain.errors import InvalidInput, located
from queuer.domain.quantity import NOTHING
from queuer.domain.reasons import Explanation
from queuer.solver.decide import decide
from queuer.solver.faults import problems_of
from queuer.solver.records import Budget, Plan, Snapshot

VERSION = 6
"""Written and read; the records of versions 1 to 4 were others."""
MOST_BYTES = 2**28
"""Of a cycle, unpacked."""
NO_KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_MARK = b"queuer-cycle "


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCycle:
    """The arguments of one decision and its plan; None = there was none.

    CP-SAT is bounded by deterministic time, so the clock matters in one way only. When a solver process was given up
    (`plan.stats.fallback`), the decision was made without CP-SAT.

    The other fields serve jobs that are only asked about. `priorities`: the value of each PriorityClass, under `""`
    that of jobs that name none; empty = unknown. `unseen`: by namespace the kinds of its objects that bear on its jobs
    and that no decision sees.
    """

    snapshot: Snapshot
    now: float
    seed: int
    budget: Budget
    plan: Plan | None
    priorities: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    unseen: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NO_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortPlan:
    """A plan as it is written: without its explanations, which many gangs share. `reasons`: these, each once;
    `reason_of`: by uid the index of its own.
    """

    plan: Plan
    reasons: tuple[Explanation, ...]
    reason_of: Mapping[str, int]

    @classmethod
    def of(cls, plan: Plan) -> ShortPlan:
        """Explanations that are one object are written once."""
        reasons = {id(reason): reason for reason in plan.explanations.values()}
        index = {key: i for i, key in enumerate(reasons)}
        reason_of = {uid: index[id(reason)] for uid, reason in plan.explanations.items()}
        short = replace(plan, explanations={})
        return cls(plan=short, reasons=tuple(reasons.values()), reason_of=reason_of)

    def whole(self) -> Plan:
        """The plan. Raises IndexError where an index is none."""
        told = {uid: self.reasons[i] for uid, i in self.reason_of.items()}
        return replace(self.plan, explanations=told)


def encode(cycle: StoredCycle) -> bytes:
    """The file's content."""
    records = (replace(cycle, plan=None), None if cycle.plan is None else ShortPlan.of(cycle.plan))
    return _MARK + b"%d\n" % VERSION + zlib.compress(msgspec.msgpack.encode(records, enc_hook=dict))


def decode(data: bytes, *, name: str = "file") -> StoredCycle:
    """The inverse of `encode`. Raises InvalidInput naming `name` and, where one is wrong, the field."""
    head = data[:64].partition(b"\n")[0]
    version = head.removeprefix(_MARK)
    if not head.startswith(_MARK) or not version.isdigit():
        raise InvalidInput.at(name, "is not a stored cycle", "its first line is `queuer-cycle` and a version")
    if int(version) != VERSION:
        hint = f"this program reads version {VERSION}; use the version of Queuer that wrote the file"
        raise InvalidInput.at(name, f"has version {int(version)}", hint)
    body = _unpacked(data[len(head) + 1 :], name=name)
    try:
        cycle, short = msgspec.msgpack.decode(body, type=tuple[StoredCycle, ShortPlan | None])
        cycle = replace(cycle, plan=None if short is None else short.whole())
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:  # ValidationError included
        path, message = located(error)
        field = path.removeprefix("[0]").removeprefix("[1]").removeprefix(".")
        hint = "the file was not written by this format"
        raise InvalidInput.at(f"{name}: {field}" if field else name, message, hint) from error
    for problem in problems_of(cycle.snapshot, now=cycle.now, budget=cycle.budget):
        raise InvalidInput(replace(problem, field=f"{name}: {problem.field}"))
    return cycle


def _unpacked(data: bytes, *, name: str) -> bytes:
    """The records, no more than `MOST_BYTES` of them."""
    inflate = zlib.decompressobj()
    try:
        body = inflate.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise InvalidInput.at(name, f"is damaged: {error}", "copy it again") from error
    if inflate.unconsumed_tail:
        raise InvalidInput.at(name, f"unpacks to more than {MOST_BYTES} bytes", "no cycle is that large")
    if not inflate.eof or inflate.unused_data:
        what = "bytes after its end" if inflate.eof else "no end"
        raise InvalidInput.at(name, f"has {what}", "copy it again")
    return body


def again(cycle: StoredCycle) -> Plan:
    """The decision made anew; without CP-SAT where the solver process had been given up, or there was no plan."""
    given_up = cycle.plan is None or bool(cycle.plan.stats.fallback)
    budget = replace(cycle.budget, deterministic=0.0) if given_up else cycle.budget
    return decide(cycle.snapshot, now=cycle.now, seed=cycle.seed, budget=budget)


def difference(stored: Plan, made: Plan) -> str:
    """The first place at which two plans differ, as `field: stored, made`; empty where they are the same.

    Facts from the caller of a decision are not compared: seconds by phase, and the fate of the solver process; nor is
    the lost work that evictions, bonds and reasons are told with.
    """
    told = replace(stored.stats, phases={}, fallback="", note=made.stats.note)
    if stored.stats.fallback:
        told = replace(told, status=made.stats.status)
    got = replace(made.stats, phases={}, fallback="")
    return _differ("", _plain(replace(stored, stats=told)), _plain(replace(made, stats=got)))


def _plain(plan: Plan) -> Any:
    return _without_costs(msgspec.msgpack.decode(msgspec.msgpack.encode(plan, enc_hook=dict)))


def _without_costs(value: Any) -> Any:
    """The same without the lost work, which older versions did not write."""
    if isinstance(value, list):
        return [_without_costs(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_costs(item) for name, item in value.items() if name != "lost"}
    return value


def _differ(at: str, left: Any, right: Any) -> str:
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        left, right = ({f"[{i}]": item for i, item in enumerate(side)} for side in (left, right))
    elif isinstance(left, list) and isinstance(right, list):
        return f"{at}: {len(left)} entries, {len(right)}"
    if not (isinstance(left, dict) and isinstance(right, dict)):
        return f"{at}: {left!r:.200}, {right!r:.200}"
    key = next((key for key in left | right if left.get(key) != right.get(key)), None)
    if key is None:
        return ""
    where = f"{at}{key}" if key.startswith("[") or not at else f"{at}.{key}"
    return _differ(where, left.get(key), right.get(key))

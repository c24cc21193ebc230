"""What a reader may see of other jobs in a reason: by name those of namespaces that they read, of all others the queue.

The amounts stay. Whatever a reason says of another job is a mapping with its `namespace`; see `hidden`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from queuer.domain.reasons import Explanation, Reason

Reads = Callable[[str], bool]
"""Whether the reader may see the jobs of a namespace."""
_WHO = frozenset({"namespace", "name", "uid", "owner", "workload", "reservation", "beneficiary", "user"})
"""Keys that say who a job is."""
_WORDS = frozenset({"why", "note"})
"""Sentences about it, which may name its pod sets or others."""


def named_in(value: Any) -> Iterator[str]:
    """All namespaces that parameters or parts of an explanation name."""
    if isinstance(value, Mapping):
        if isinstance(value.get("namespace"), str):
            yield value["namespace"]
        for part in value.values():
            yield from named_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from named_in(part)


def namespaces(explanation: Explanation) -> frozenset[str]:
    """All that an explanation names, which are those of other jobs and perhaps its own."""
    reasons = (explanation.primary, *explanation.others)
    return frozenset(named_in([*(r.params for r in reasons), *explanation.would_admit, explanation.detail]))


def hidden(value: Any, reads: Reads) -> Any:
    """The same without what says who a job of a namespace is that the reader does not read. What names none is not
    copied.
    """
    if all(map(reads, named_in(value))):
        return value
    if isinstance(value, list | tuple):
        return [hidden(part, reads) for part in value]
    foreign = "namespace" in value and not reads(value["namespace"])
    left_out = _WHO | _WORDS if foreign else frozenset[str]()
    return {key: hidden(part, reads) for key, part in value.items() if key not in left_out}


def veiled(explanation: Explanation, reads: Reads) -> Explanation:
    """The explanation as this reader may have it; the same one where it names nobody else."""
    primary, others = _reason(explanation.primary, reads), [_reason(o, reads) for o in explanation.others]
    admit = [_change(row, reads) for row in explanation.would_admit]
    detail = hidden(explanation.detail, reads)
    parts = (primary, tuple(others), tuple(admit), detail)
    same = (explanation.primary, explanation.others, explanation.would_admit, explanation.detail)
    if parts == same:
        return explanation
    return replace(explanation, primary=parts[0], others=parts[1], would_admit=parts[2], detail=detail)


def _reason(reason: Reason, reads: Reads) -> Reason:
    params = hidden(reason.params, reads)
    return reason if params is reason.params else Reason(reason.token, params, reason.said)


def _change(row: Mapping[str, Any], reads: Reads) -> Mapping[str, Any]:
    """That a job ends is said of its queue and amount, where the job is not to be named."""
    kept: Mapping[str, Any] = hidden(row, reads)
    if kept is row:
        return row
    return {**kept, "change": f"a job of {row['queue']} with {row['amount']} {row['resource']} ends"}

"""What would let a waiting gang start now, without an eviction: changes that were tried, not guessed.

Tried on the state at the end of the cycle: a wider or no topology level, and fewer pods in the largest pod
set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from queuer.domain.workload import PodSet, Workload
from queuer.solver.contested import Variant
from queuer.solver.order import Gang

Tries = Callable[[Workload, Variant], bool]
"""Whether a changed workload would start now at these flavors and sizes."""


def would_admit(gang: Gang, topology: tuple[str, ...], starts: Tries) -> tuple[Mapping[str, Any], ...]:
    """Single changes after which the gang starts, each `{"change": …, "evictions": 0}`. `topology`: level
    names.
    """
    return tuple({"change": change, "evictions": 0} for change in _changes(gang, topology, starts))


def _changes(gang: Gang, topology: tuple[str, ...], starts: Tries) -> Iterator[str]:
    workload = gang.pending.workload
    if workload.required is not None:
        at = next((i for i, name in enumerate(topology) if name == workload.required.rsplit("/", 1)[-1]), 0)
        for level in (*reversed(topology[:at]), None):
            wider = replace(workload, required=level)
            if any(starts(wider, _least(gang, v)) for v in gang.shape.variants):
                yield f"topology={level or 'any'}"
                break
    for variant in gang.shape.variants:
        count, name = _fewer(gang, variant, starts)
        if count:
            yield f"{name}.count<={count}"
            return


def _least(gang: Gang, variant: Variant) -> Variant:
    return replace(variant, counts=dict(gang.shape.least))


def _fewer(gang: Gang, variant: Variant, starts: Tries) -> tuple[int, str]:
    """The most pods of the largest set with which the gang would start; 0 = none."""
    workload = gang.pending.workload
    largest: PodSet = max(workload.pod_sets, key=lambda p: gang.shape.least[p.name])
    low, high = 0, gang.shape.least[largest.name] - 1
    while low < high:
        middle = (low + high + 1) // 2
        counts = {**gang.shape.least, largest.name: middle}
        if starts(workload, replace(variant, counts=counts)):
            low = middle
        else:
            high = middle - 1
    return low, largest.name

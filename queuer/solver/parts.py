"""Pod sets of one gang as they are placed, and whether they land beside each other where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from queuer.domain.workload import Workload
from queuer.solver.contested import Variant
from queuer.solver.frame import Frame, Mask, Matrix, Need
from queuer.solver.landing import Effort, Group, together

Spread = dict[int, int]
"""Pods by node number."""


@dataclass(slots=True, eq=False)
class Part:
    """One pod set to place. `open`: nodes that it may use, those that are accepting its pods less `closed`.
    `required`, `preferred`: level numbers for the set alone.
    """

    name: str
    count: int
    need: Need
    row: Matrix
    accepting: Mask
    closed: Mask | None
    open: Mask
    required: int | None
    preferred: int | None


@dataclass(slots=True)
class Limits:
    """Whether all places were looked at (`exact`), which they were not once the exhaustive search ran out of steps, and
    whether there was one in which the sets would not land beside each other (`crossing`). `effort`: what is left for
    all questions together, None = as much as each takes.
    """

    exact: bool = True
    crossing: bool = False
    effort: Effort | None = None

    @property
    def spent(self) -> bool:
        """Whether no more is to be tried than what costs nothing."""
        return self.effort is not None and self.effort.left < 0


def parts_of(
    frame: Frame, workload: Workload, variant: Variant, closed: Mask | None, *, idle: bool = False
) -> list[Part]:
    """The pod sets of a gang for one variant. `closed`: nodes that it may not use."""
    find = frame.snapshot.topology.find
    parts = []
    for pod_set in workload.pod_sets:
        count = variant.counts[pod_set.name]
        if count:
            accepting = frame.open_to(pod_set, variant.flavors[pod_set.name], idle=idle)
            parts.append(
                Part(
                    name=pod_set.name,
                    count=count,
                    need=frame.need(pod_set),
                    row=frame.row(pod_set.requests),
                    accepting=accepting,
                    closed=closed,
                    open=accepting if closed is None else accepting & ~closed,
                    required=find(pod_set.required) if pod_set.required else None,
                    preferred=find(pod_set.preferred) if pod_set.preferred else None,
                )
            )
    return parts


def safe(
    frame: Frame,
    free: Matrix,
    parts: Sequence[Part],
    found: Mapping[str, Spread],
    effort: Effort | None = None,
) -> bool:
    """Whether the sets land for certain beside each other, each pinned to its hosts, or to more of the gang's."""
    groups = [
        Group(
            uid="",
            count=part.count,
            need=part.need,
            row=part.row,
            hosts=frozenset(found[part.name]),
            open=frame.alongside(part.open, part.required, found[part.name]),
        )
        for part in parts
    ]
    return all(len(g.hosts) == 1 for g in groups) or together(groups, (), free, effort) is not None


def take(free: Matrix, row: Matrix, spread: Spread, *, times: int = 1) -> None:
    """Take `spread` pods of `row` (R) off `free`; `times=-1` gives them back."""
    for node, count in spread.items():
        free[node] -= row * (count * times)

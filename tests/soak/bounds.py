"""Bounds that a soak must keep from its first quiet point to its last, as sentences about each miss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from queuer.store import retention
from tests.soak.census import Census
from tests.soak.quiet import Moment

WARM_UP = 2
"""Quiet points that are left out where something is to stay as it is: allocators and caches fill up first."""
FLAT = 0.10
"""How far the memory of a process may be from its median, as a share of it."""
BOUNDED = frozenset(
    {rule.table for rule in retention.RULES}
    | {name for name, bound in retention.KEPT.items() if bound is retention.Bound.WORKLOAD}
)
"""Tables that may grow with the jobs that come: an age bounds them."""
MORE = 100
"""Entries by which a container may grow: less is chance."""
ENOUGH = 4
"""Quiet points that tell what grows from what goes up and down."""


def spread(course: Sequence[float]) -> float:
    """The largest distance from the median, as a share of it."""
    middle = median(course)
    return max(abs(value - middle) for value in course) / middle


def rises(course: Sequence[int]) -> bool:
    """Whether it was more, or the same, each time, and is much more now."""
    return len(course) >= ENOUGH and course[-1] > course[0] + MORE and list(course) == sorted(course)


def broken(moments: Sequence[Moment]) -> Iterator[str]:
    """The broken bounds."""
    for moment in moments:
        yield from (f"after {moment.jobs} jobs: {said}" for said in moment.wrong)
    if not moments:
        return
    warm, last = moments[WARM_UP:] or moments[-1:], moments[-1]
    for name in last.rss:
        if (found := spread([moment.rss[name] for moment in warm])) > FLAT:
            yield f"the memory of {name} is not flat: {found:.0%} from its median"
    for name in last.census:
        yield from _kept(name, [moment.census[name] for moment in warm])
    if rises(course := [moment.series for moment in warm]):
        yield f"the metrics have more and more series: {course}"
    for name, table in last.tables.items():
        if name not in BOUNDED and table.rows > warm[0].tables[name].rows:
            yield f"{name} grows, and no rule of retention bounds it"
    for rule, rows in last.outdated.items():
        if rows > retention.BATCH and rows >= moments[0].outdated[rule]:  # fewer wait for the next round
            yield f"retention does not keep up: {rows} rows are left of {rule}"


def _kept(name: str, course: Sequence[Census]) -> Iterator[str]:
    """Things of which one process keeps more and more."""
    for what in course[-1].entries:
        if rises(counts := [census.entries.get(what, 0) for census in course]):
            yield f"{name} keeps more and more in {what}: {counts}"
    if rises(counts := [census.tasks for census in course]):
        yield f"{name} has more and more tasks: {counts}"

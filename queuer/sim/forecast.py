"""When waiting gangs will start: the decision itself, rolled forward over the ends that are expected.

Several times, with run times drawn around what is expected. CP-SAT is not asked, nobody new arrives, and work without
an expected end does not end. The controller asks `forecast` in a child process. A replay holds such ranges against the
real starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import exp, inf, log
from random import Random
from statistics import NormalDist

from queuer.domain.estimates import FORETOLD, StartRange
from queuer.sim.report import Accuracy, Estimates
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.ends import expected_end
from queuer.solver.faults import faults_of_workload
from queuer.solver.records import WITHOUT_SOLVER, Admitted, Pending, Snapshot
from queuer.solver.world import World

_NORMAL = NormalDist()
STEP, SLACK = 30.0, 0.1
"""What ends within so many seconds, or this part of the time rolled, is one step, so that few decisions reach far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Bounds of one forecast: seconds ahead, rolls, decisions in each, gangs looked at in each queue and in all.

    `spread`: standard deviation of the logarithm of a run time; 0 = as expected. 1 is about what run times learned
    on traces are off by (`docs/measurements.md`).
    """

    horizon: float = 7 * 86_400.0
    rolls: int = 8
    decisions: int = 40
    per_queue: int = FORETOLD
    gangs: int = 500
    spread: float = 1.0


def forecast(
    snapshot: Snapshot, *, now: float, seed: int, effort: Effort | None = None
) -> dict[str, StartRange]:
    """Start ranges by uid of the first gangs of each queue that start. The same arguments give the same answer."""
    effort = effort or Effort()
    arrays = Arrays.of(replace(snapshot, pending=_first(snapshot, effort)))
    rolls = [_roll(arrays, effort, now=now, seed=seed, number=i) for i in range(effort.rolls)]
    found = {}
    for uid in dict.fromkeys(uid for roll in rolls for uid in roll):
        steps = [roll.get(uid, (inf, inf)) for roll in rolls]
        ends = sorted(end for _, end in steps)
        likely, latest = (None if end == inf else end for end in (ends[len(ends) // 2], ends[-1]))
        found[uid] = StartRange(earliest=min(begin for begin, _ in steps), likely=likely, latest=latest)
    return found


def _first(snapshot: Snapshot, effort: Effort) -> tuple[Pending, ...]:
    """The gangs that are looked at: those for which something is held, then those at the head of each queue."""
    held = {b.uid for b in snapshot.bonds} | {r.uid for r in snapshot.reservations}
    places, ranked = Counter[str](), []
    rows = [
        ((not p.first, -w.priority, w.submitted, w.uid), p)
        for p in snapshot.pending
        if not any(faults_of_workload(w := p.workload))
    ]
    for (*_, uid), pending in sorted(rows, key=lambda row: row[0]):
        places[pending.workload.queue] += 1
        rank = 0 if uid in held else places[pending.workload.queue]
        if rank <= effort.per_queue:
            ranked.append((rank, pending))
    ranked.sort(key=lambda row: row[0])
    return tuple(pending for _, pending in ranked[: effort.gangs])


def _roll(
    arrays: Arrays, effort: Effort, *, now: float, seed: int, number: int
) -> dict[str, tuple[float, float]]:
    """One course that the future may take: for each gang the begin and the end of the step in which it first starts."""
    end_of = partial(_end_of, spread=effort.spread, luck=f"{seed} {number}")
    world = World(arrays.snapshot, now=now, landing=0.0, end_of=end_of)
    starts: dict[str, tuple[float, float]] = {}
    begin = now
    for _ in range(effort.decisions):
        arrays = arrays.follow(world.snapshot())
        plan = decide(arrays.snapshot, now=world.time, seed=seed, budget=WITHOUT_SOLVER, arrays=arrays)
        for admission in plan.admissions:
            starts.setdefault(admission.uid, (begin, world.time))
        world.apply(plan)
        begin, end = _next_step(world, began=now)
        if end > now + effort.horizon or not world.waiting:
            break
        world.pass_to(end)
    return starts


def _next_step(world: World, *, began: float) -> tuple[float, float]:
    """The first and the last of the next ends that are close together; inf = nothing comes."""
    first = min((at for at in world.moments() if at > world.time), default=inf)
    until = first + max(STEP, SLACK * (first - began))
    ends = (end for end in world.ends.values() if world.time < end <= until)
    return first, max(ends, default=first)


def _end_of(run: Admitted, now: float, *, spread: float, luck: str) -> float:
    """The end of a run in this roll, which may be at another time than is expected."""
    if not run.releasing and run.expected_end is not None:
        since, bound = run.since, run.workload.max_runtime
        chance = Random(f"{luck} {run.workload.uid}").random()
        lasts = _drawn(run.expected_end - since, age=now - since, luck=chance, spread=spread)
        run = replace(run, expected_end=since + (lasts if bound is None else min(lasts, bound)))
    return expected_end(run, now=now)


def _drawn(expected: float, *, age: float, luck: float, spread: float) -> float:
    """A run time around what was expected, given that it is more than the age. `luck`: 0 to 1."""
    if spread <= 0 or expected <= 0:
        return expected
    passed = _NORMAL.cdf(log(age / expected) / spread) if age > 0 else 0.0
    part = min(max(passed + (1 - passed) * luck, 1e-9), 1 - 1e-9)
    return expected * exp(spread * _NORMAL.inv_cdf(part))


# How good the ranges are

WATCHED = Effort(decisions=30, gangs=100)
"""Less than a controller may spend: a replay makes many forecasts."""


class Watcher:
    """Makes a forecast every so many seconds of virtual time, and keeps the first and the last range of each gang."""

    def __init__(self, *, every: float, seed: int) -> None:
        self._every, self._seed = every, seed
        self._due = float("-inf")
        self._made = 0
        self._first: dict[str, StartRange] = {}
        self._last: dict[str, StartRange] = {}

    def look(self, snapshot: Callable[[], Snapshot], *, now: float) -> None:
        """Called at every time that has settled. `snapshot`: takes one at that time."""
        if now < self._due or not (made := snapshot()).pending:
            return
        self._due = now + self._every
        self._made += 1
        for uid, told in forecast(made, now=now, seed=self._seed, effort=WATCHED).items():
            self._first.setdefault(uid, told)
            self._last[uid] = told

    def result(self, starts: Mapping[str, float]) -> Estimates:
        """The ranges beside the real starts. `starts`: first real start by uid."""
        first, last = (Accuracy.of(told, starts) for told in (self._first, self._last))
        return Estimates(forecasts=self._made, first=first, last=last)

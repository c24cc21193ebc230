"""When waiting gangs will start: the decision itself, rolled forward over the ends that are expected.

Several times, with run times drawn around what is expected: a gang that needs any of many ends starts earlier, one that
needs all of them later than the expected ends themselves would say. Greedy decides, nobody new arrives, work
without an expected end does not end. Ends that come close to each other are one step, so that a roll of few
decisions reaches far. `python -m queuer.solver.forecast` answers one request on stdin, in a process of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, inf, log
from random import Random
from statistics import NormalDist

import msgspec

from queuer.domain.quantity import Resources, add
from queuer.domain.workload import GRACE
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.ends import end_of, expected_end
from queuer.solver.problem import Admission, Admitted, Budget, Pending, Plan, Snapshot
from queuer.solver.sound import countable
from queuer.solver.stored import decode

_NORMAL = NormalDist()
STEP, SLACK = 30.0, 0.1
"""What ends within so many seconds, or within this part of the time rolled so far, is one step."""
GREEDY = Budget(deterministic=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRange:
    """When a gang starts, seconds since the epoch: the first of all rolls, the median, the last. None = later than
    was rolled.
    """

    earliest: float
    likely: float | None
    latest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Bounds of one forecast: seconds ahead, rolls, decisions in each, gangs looked at in each queue and in all.

    `spread`: standard deviation of the logarithm of a run time; 0 = as expected. 1 is about what run times learned
    on traces are off by (`docs/measurements.md`). If run times are so, a start falls between the first and the last
    of n rolls with a chance of (n - 1) in (n + 1).
    """

    horizon: float = 7 * 86_400.0
    rolls: int = 8
    decisions: int = 40
    per_queue: int = 10
    gangs: int = 500
    spread: float = 1.0


def forecast(
    snapshot: Snapshot, *, now: float, seed: int, effort: Effort | None = None
) -> dict[str, StartRange]:
    """Start ranges by uid of the first gangs of each queue; without one: no start was found. The same arguments
    give the same answer."""
    effort = effort or Effort()
    first = replace(snapshot, pending=tuple(_first(snapshot, effort)))
    arrays = Arrays.of(first)
    rolls = [_Roll(arrays, effort, now=now, seed=seed, number=i).run() for i in range(effort.rolls)]
    found = {}
    for pending in first.pending:
        uid = pending.workload.uid
        steps = [roll.get(uid, (inf, inf)) for roll in rolls]
        earliest = min(begin for begin, _ in steps)
        ends = sorted(end for _, end in steps)
        likely, latest = ends[len(ends) // 2], ends[-1]
        if earliest < inf:
            found[uid] = StartRange(earliest=earliest, likely=_known(likely), latest=_known(latest))
    return found


def _known(time: float) -> float | None:
    return None if time == inf else time


def _first(snapshot: Snapshot, effort: Effort) -> Iterable[Pending]:
    """Who is looked at: gangs for which something is held, then those at the head of each queue."""
    held = {b.uid for b in snapshot.bonds} | {r.uid for r in snapshot.reservations}
    places: dict[str, int] = {}
    ranked = []
    for pending in sorted((p for p in snapshot.pending if countable(p.workload)), key=_seniority):
        queue = pending.workload.queue
        places[queue] = places.get(queue, 0) + 1
        rank = 0 if pending.workload.uid in held else places[queue]
        if rank <= effort.per_queue:
            ranked.append((rank, pending))
    ranked.sort(key=lambda row: row[0])
    return (pending for _, pending in ranked[: effort.gangs])


def _seniority(pending: Pending) -> tuple[bool, int, float, str]:
    workload = pending.workload
    return (not pending.first, -workload.priority, workload.submitted, workload.uid)


class _Roll:
    """One way in which the future may go."""

    def __init__(self, arrays: Arrays, effort: Effort, *, now: float, seed: int, number: int) -> None:
        snapshot = arrays.snapshot
        self._arrays, self._snapshot, self._effort, self._began, self._seed = (
            arrays,
            snapshot,
            effort,
            now,
            seed,
        )
        self._number = number
        self._time = now
        self._nodes = {s.node.name: s for s in snapshot.nodes}
        self._waiting = {p.workload.uid: p for p in snapshot.pending}
        self._bonds, self._reservations = snapshot.bonds, snapshot.reservations
        self._here: dict[str, Admitted] = {}
        self._ends: dict[str, float] = {}
        self._back: dict[str, Pending] = {}
        for admitted in snapshot.admitted:
            landed = self._landed(admitted)
            self._here[landed.workload.uid] = landed
            self._ends[landed.workload.uid] = self._end(landed)

    def run(self) -> dict[str, tuple[float, float]]:
        """In which step each gang first starts: its begin and its end, by uid."""
        starts: dict[str, tuple[float, float]] = {}
        begin = self._time
        for _ in range(self._effort.decisions):
            self._arrays = self._arrays.follow(self._now())
            snapshot = self._arrays.snapshot
            plan = decide(snapshot, now=self._time, seed=self._seed, budget=GREEDY, arrays=self._arrays)
            for admission in plan.admissions:
                starts.setdefault(admission.uid, (begin, self._time))
            self._carry_out(plan)
            begin, end = self._next()
            if end > self._began + self._effort.horizon or not self._waiting:
                break
            self._pass_to(end)
        return starts

    def _now(self) -> Snapshot:
        return replace(
            self._snapshot,
            nodes=tuple(self._nodes.values()),
            admitted=tuple(self._here.values()),
            pending=tuple(self._waiting.values()),
            bonds=self._bonds,
            reservations=self._reservations,
        )

    def _end(self, admitted: Admitted) -> float:
        """When it really ends in this roll."""
        if admitted.releasing:
            return _gone(admitted, now=self._time)
        expected, since = admitted.expected_end, admitted.since
        if expected is None:
            return inf
        luck = Random(f"{self._seed} {self._number} {admitted.workload.uid}").random()
        lasts = _drawn(expected - since, age=self._time - since, luck=luck, spread=self._effort.spread)
        bound = admitted.workload.max_runtime
        end = since + (lasts if bound is None else min(lasts, bound))
        return expected_end(replace(admitted, expected_end=end), now=self._time)

    def _landed(self, admitted: Admitted) -> Admitted:
        """With all pods on nodes: those that have still to land take the first hosts of their pin that have room."""
        sets = {p.name: p for p in admitted.workload.pod_sets}
        bound, left = dict(admitted.bound), []
        for loose in admitted.unbound:
            asked, count = sets[loose.pod_set], loose.count
            open_ = []
            for host in loose.hosts:
                most = min(count, 1) if asked.exclusive_host else count
                landed = 0
                while landed < most and self._fits(host, asked.requests):
                    self._take(host, asked.requests)
                    bound[host] = add(bound.get(host, {}), asked.requests)
                    landed += 1
                count -= landed
                if not (landed and asked.exclusive_host):
                    open_.append(host)
            if count:
                left.append(replace(loose, count=count, hosts=tuple(open_)))
        return replace(admitted, bound=bound, unbound=tuple(left))

    def _fits(self, host: str, requests: Resources) -> bool:
        if host not in self._nodes:
            return False
        there, used = self._nodes[host].node.allocatable, self._nodes[host].used
        return all(used.get(r, 0) + n <= there.get(r, 0) for r, n in requests.items() if n)

    def _take(self, host: str, amounts: Resources, *, times: int = 1) -> None:
        if host in self._nodes:
            state = self._nodes[host]
            self._nodes[host] = replace(state, used=add(state.used, amounts, times=times))

    def _carry_out(self, plan: Plan) -> None:
        for admission in plan.admissions:
            self._start(self._waiting.pop(admission.uid), admission)
        for eviction in plan.evictions:
            victim = self._here[eviction.uid]
            gone = self._ends[eviction.uid] = self._time + GRACE
            self._here[eviction.uid] = replace(victim, releasing=True, gone_by=gone)
            displacer = frozenset({eviction.beneficiary})
            self._back[eviction.uid] = Pending(workload=victim.workload, displaced_by=displacer)
        self._bonds, self._reservations = plan.bonds, plan.reservations

    def _start(self, pending: Pending, admission: Admission) -> None:
        workload = pending.workload
        requests = {p.name: p.requests for p in workload.pod_sets}
        bound: dict[str, Mapping[str, int]] = {}
        for row in admission.assignments:
            for host, count in row.nodes.items():
                bound[host] = add(bound.get(host, {}), requests[row.pod_set], times=count)
        for host, amounts in bound.items():
            self._take(host, amounts)
        admitted = Admitted(
            workload=workload,
            counts={row.pod_set: row.count for row in admission.assignments},
            flavors={row.pod_set: row.flavor for row in admission.assignments},
            since=self._time,
            bound=bound,
            expected_end=end_of(workload, start=self._time),
            displaced_by=pending.displaced_by,
        )
        self._here[workload.uid] = admitted
        self._ends[workload.uid] = self._end(admitted)

    def _next(self) -> tuple[float, float]:
        """The next step: the first and the last of the ends that are close together; inf = nothing comes."""
        ends = [end for end in self._ends.values() if end > self._time]
        times = [*ends, *(b.deadline for b in self._bonds), *(r.start for r in self._reservations)]
        for admitted in self._here.values():
            if admitted.workload.queue in self._snapshot.tree:
                least = self._snapshot.tree.policy(admitted.workload.queue).min_runtime
                times.append(admitted.since + (least or 0.0))
        first = min((t for t in times if t > self._time), default=inf)
        until = first + max(STEP, SLACK * (first - self._began))
        return first, max((end for end in ends if end <= until), default=first)

    def _pass_to(self, at: float) -> None:
        self._time = at
        for uid in [uid for uid, end in self._ends.items() if end <= at]:
            del self._ends[uid]
            for host, amounts in self._here.pop(uid).bound.items():
                self._take(host, amounts, times=-1)
            if uid in self._back:
                self._waiting[uid] = self._back.pop(uid)


def _gone(admitted: Admitted, *, now: float) -> float:
    """When the pods of releasing work are gone."""
    return now + GRACE if admitted.gone_by is None or admitted.gone_by <= now else admitted.gone_by


def _drawn(expected: float, *, age: float, luck: float, spread: float) -> float:
    """A run time around what was expected, given that it is more than the age. `luck`: 0 to 1."""
    if spread <= 0 or expected <= 0:
        return expected
    passed = _NORMAL.cdf(log(age / expected) / spread) if age > 0 else 0.0
    part = min(max(passed + (1 - passed) * luck, 1e-9), 1 - 1e-9)
    return expected * exp(spread * _NORMAL.inv_cdf(part))


def main() -> None:
    """A stored cycle on stdin, start ranges by uid as JSON on stdout."""
    os.nice(10)
    asked = decode(sys.stdin.buffer.read(), name="stdin")
    found = forecast(asked.snapshot, now=asked.now, seed=asked.seed)
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()

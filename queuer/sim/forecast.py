"""When waiting gangs will start: the decision itself, rolled forward over the ends that are expected.

Several times, with run times drawn around what is expected. CP-SAT is not asked, nobody new arrives, and work without
an expected end does not end. The controller asks `forecast` in a child process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import exp, inf, log
from random import Random
from statistics import NormalDist

from queuer.domain.assignments import Admission
from queuer.domain.estimates import FORETOLD, StartRange
from queuer.domain.quantity import Resources, add
from queuer.domain.workload import GRACE
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.ends import end_of, expected_end
from queuer.solver.faults import faults_of_workload
from queuer.solver.records import Admitted, Budget, Pending, Plan, Snapshot

_NORMAL = NormalDist()
STEP, SLACK = 30.0, 0.1
"""What ends within so many seconds, or this part of the time rolled, is one step, so that few decisions reach far."""
NO_CPSAT = Budget(deterministic=0.0)


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
    rolls = [_Roll(arrays, effort, now=now, seed=seed, number=i).run() for i in range(effort.rolls)]
    found = {}
    for uid in dict.fromkeys(uid for roll in rolls for uid in roll):
        steps = [roll.get(uid, (inf, inf)) for roll in rolls]
        ends = sorted(end for _, end in steps)
        likely, latest = (None if end == inf else end for end in (ends[len(ends) // 2], ends[-1]))
        found[uid] = StartRange(earliest=min(begin for begin, _ in steps), likely=likely, latest=latest)
    return found


def _first(snapshot: Snapshot, effort: Effort) -> tuple[Pending, ...]:
    """Who is looked at: gangs for which something is held, then those at the head of each queue."""
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


class _Roll:
    """One course that the future may take."""

    def __init__(self, arrays: Arrays, effort: Effort, *, now: float, seed: int, number: int) -> None:
        self._arrays, self._effort, self._began, self._time = arrays, effort, now, now
        self._seed, self._number = seed, number
        snapshot = self._snapshot = arrays.snapshot
        self._nodes = {s.node.name: s for s in snapshot.nodes}
        self._waiting = {p.workload.uid: p for p in snapshot.pending}
        self._bonds, self._reservations = snapshot.bonds, snapshot.reservations
        self._here: dict[str, Admitted] = {}
        self._ends: dict[str, float] = {}
        self._back: dict[str, Pending] = {}
        for admitted in snapshot.admitted:
            self._run(self._landed(admitted))

    def run(self) -> dict[str, tuple[float, float]]:
        """In which step each gang first starts: its begin and its end, by uid."""
        starts: dict[str, tuple[float, float]] = {}
        begin = self._time
        for _ in range(self._effort.decisions):
            snapshot = replace(
                self._snapshot,
                nodes=tuple(self._nodes.values()),
                admitted=tuple(self._here.values()),
                pending=tuple(self._waiting.values()),
                bonds=self._bonds,
                reservations=self._reservations,
            )
            self._arrays = self._arrays.follow(snapshot)
            plan = decide(snapshot, now=self._time, seed=self._seed, budget=NO_CPSAT, arrays=self._arrays)
            for admission in plan.admissions:
                starts.setdefault(admission.uid, (begin, self._time))
            self._carry_out(plan)
            begin, end = self._next()
            if end > self._began + self._effort.horizon or not self._waiting:
                break
            self._pass_to(end)
        return starts

    def _run(self, admitted: Admitted) -> None:
        """It is here until it ends, which in this roll may be at another time than is expected."""
        now, since, uid = self._time, admitted.since, admitted.workload.uid
        luck = Random(f"{self._seed} {self._number} {uid}").random()
        ends = admitted
        if not admitted.releasing and admitted.expected_end is not None:
            expected, bound = admitted.expected_end - since, admitted.workload.max_runtime
            lasts = _drawn(expected, age=now - since, luck=luck, spread=self._effort.spread)
            ends = replace(admitted, expected_end=since + (lasts if bound is None else min(lasts, bound)))
        self._here[uid] = admitted
        self._ends[uid] = expected_end(ends, now=now)

    def _landed(self, admitted: Admitted) -> Admitted:
        """With all pods on nodes: those that have still to land take the first hosts of their pin that have room, and
        are forgotten where none has.
        """
        sets = {p.name: p for p in admitted.workload.pod_sets}
        bound = dict(admitted.bound)
        for loose in admitted.unbound:
            asked, left = sets[loose.pod_set], loose.count
            for host in (name for name in loose.hosts if name in self._nodes):
                there, used = self._nodes[host].node.allocatable, self._nodes[host].used
                slots = [(there.get(r, 0) - used.get(r, 0)) // n for r, n in asked.requests.items() if n]
                landed = max(min([left, *slots, *([1] if asked.exclusive_host else [])]), 0)
                self._land(bound, host, asked.requests, landed)
                left -= landed
        return replace(admitted, bound=bound, unbound=())

    def _land(self, bound: dict[str, Resources], host: str, requests: Resources, count: int) -> None:
        if count:
            self._take(host, requests, times=count)
            bound[host] = add(bound.get(host, {}), requests, times=count)

    def _take(self, host: str, amounts: Resources, *, times: int) -> None:
        if host in self._nodes:
            state = self._nodes[host]
            self._nodes[host] = replace(state, used=add(state.used, amounts, times=times))

    def _carry_out(self, plan: Plan) -> None:
        for admission in plan.admissions:
            self._run(self._started(self._waiting.pop(admission.uid), admission))
        for eviction in plan.evictions:
            victim = self._here[eviction.uid]
            self._run(replace(victim, releasing=True, gone_by=self._time + GRACE))
            displacer = frozenset({eviction.beneficiary})
            self._back[eviction.uid] = Pending(workload=victim.workload, displaced_by=displacer)
        self._bonds, self._reservations = plan.bonds, plan.reservations

    def _started(self, pending: Pending, admission: Admission) -> Admitted:
        workload, rows = pending.workload, admission.assignments
        requests = {p.name: p.requests for p in workload.pod_sets}
        bound: dict[str, Resources] = {}
        for row in rows:
            for host, count in row.nodes.items():
                self._land(bound, host, requests[row.pod_set], count)
        return Admitted(
            workload=workload,
            counts={row.pod_set: row.count for row in rows},
            flavors={row.pod_set: row.flavor for row in rows},
            since=self._time,
            bound=bound,
            expected_end=end_of(workload, start=self._time),
            displaced_by=pending.displaced_by,
        )

    def _next(self) -> tuple[float, float]:
        """The next step: the first and the last of the ends that are close together; inf = nothing comes."""
        ends = [end for end in self._ends.values() if end > self._time]
        times = [*ends, *(b.deadline for b in self._bonds), *(r.start for r in self._reservations)]
        tree = self._snapshot.tree
        for admitted in self._here.values():
            if admitted.workload.queue in tree:
                times.append(admitted.since + (tree.policy(admitted.workload.queue).min_runtime or 0.0))
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


def _drawn(expected: float, *, age: float, luck: float, spread: float) -> float:
    """A run time around what was expected, given that it is more than the age. `luck`: 0 to 1."""
    if spread <= 0 or expected <= 0:
        return expected
    passed = _NORMAL.cdf(log(age / expected) / spread) if age > 0 else 0.0
    part = min(max(passed + (1 - passed) * luck, 1e-9), 1 - 1e-9)
    return expected * exp(spread * _NORMAL.inv_cdf(part))

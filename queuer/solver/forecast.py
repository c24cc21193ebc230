"""When waiting gangs will start: the decision itself, rolled forward over the ends that are expected.

Three times: work lasts half as long as expected, as long, and twice as long (never beyond a declared bound). Greedy
decides, nobody new arrives, work without an expected end does not end. Ends that come close to each other are
one step, so that a roll of few decisions reaches far. `python -m queuer.solver.forecast` answers one request on stdin,
in a process of its own, so that nobody waits for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

import msgspec

from queuer.domain.quantity import Resources, add
from queuer.domain.workload import Workload
from queuer.solver.board import end_of
from queuer.solver.decide import decide
from queuer.solver.problem import Admission, Admitted, Budget, NodeState, Pending, Plan, Snapshot
from queuer.solver.stored import decode
from queuer.solver.timeline import expected_end

FACTORS = (0.5, 1.0, 2.0)
"""How long work lasts, as a part of what is expected, in the rolls for earliest, likely and latest."""
STEP, SLACK = 30.0, 0.1
"""What ends within so many seconds, or within this part of the time rolled so far, is one step."""
GRACE = 30.0
"""Seconds that evicted pods take to go: the default of Kubernetes."""
GREEDY = Budget(deterministic=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRange:
    """When a gang starts, seconds since the epoch. None = not within what was rolled."""

    earliest: float
    likely: float | None
    latest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Bounds of one forecast: seconds ahead, decisions a roll, gangs looked at in each queue and in all."""

    horizon: float = 7 * 86_400.0
    decisions: int = 60
    per_queue: int = 20
    gangs: int = 1_000


def forecast(
    snapshot: Snapshot, *, now: float, seed: int, effort: Effort | None = None
) -> dict[str, StartRange]:
    """Start ranges by uid of the first gangs of each queue; without one: no start was found. The same arguments
    give the same answer."""
    effort = effort or Effort()
    first = replace(snapshot, pending=tuple(_first(snapshot, effort)))
    rolls = [_Roll(first, now=now, seed=seed, factor=factor).run(effort) for factor in FACTORS]
    _, likely, _ = rolls
    found = {}
    for pending in first.pending:
        uid = pending.workload.uid
        starts = [roll[uid] for roll in rolls if uid in roll]
        if starts:
            latest = max(starts) if len(starts) == len(rolls) else None
            found[uid] = StartRange(earliest=min(starts), likely=likely.get(uid), latest=latest)
    return found


def _first(snapshot: Snapshot, effort: Effort) -> Iterable[Pending]:
    """Who is looked at: gangs for which something is held, then those at the head of each queue."""
    held = {b.uid for b in snapshot.bonds} | {r.uid for r in snapshot.reservations}
    places: dict[str, int] = {}
    ranked = []
    for pending in sorted(snapshot.pending, key=_seniority):
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

    def __init__(self, snapshot: Snapshot, *, now: float, seed: int, factor: float) -> None:
        self._snapshot, self._began, self._seed, self._factor = snapshot, now, seed, factor
        self._time = now
        self._nodes = {s.node.name: s.node for s in snapshot.nodes}
        self._used: dict[str, Resources] = {s.node.name: s.used for s in snapshot.nodes}
        self._waiting = {p.workload.uid: p for p in snapshot.pending}
        self._bonds, self._reservations = snapshot.bonds, snapshot.reservations
        self._here: dict[str, Admitted] = {}
        self._ends: dict[str, float] = {}
        self._back: dict[str, Pending] = {}
        for admitted in snapshot.admitted:
            landed = self._landed(admitted)
            self._here[landed.workload.uid] = landed
            self._ends[landed.workload.uid] = now + GRACE if landed.releasing else self._end(landed)

    def run(self, effort: Effort) -> dict[str, float]:
        """First starts by uid."""
        starts: dict[str, float] = {}
        for _ in range(effort.decisions):
            plan = decide(self._now(), now=self._time, seed=self._seed, budget=GREEDY)
            for admission in plan.admissions:
                starts.setdefault(admission.uid, self._time)
            self._carry_out(plan)
            at = self._next()
            if at is None or at > self._began + effort.horizon or not self._waiting:
                break
            self._pass_to(at)
        return starts

    def _now(self) -> Snapshot:
        return replace(
            self._snapshot,
            nodes=tuple(NodeState(node=node, used=self._used[name]) for name, node in self._nodes.items()),
            admitted=tuple(self._here.values()),
            pending=tuple(self._waiting.values()),
            bonds=self._bonds,
            reservations=self._reservations,
        )

    def _end(self, admitted: Admitted) -> float:
        """When it really ends in this roll; what should have ended by now is given more time."""
        expected, since = admitted.expected_end, admitted.since
        if expected is None:
            return inf
        bound = admitted.workload.max_runtime
        lasts = self._factor * (expected - since)
        end = since + (lasts if bound is None else min(lasts, bound))
        return expected_end(replace(admitted, expected_end=end), now=self._time)

    def _landed(self, admitted: Admitted) -> Admitted:
        """With all pods on nodes: those that have still to land take the first hosts of their pin that have room."""
        requests = {p.name: p.requests for p in admitted.workload.pod_sets}
        bound, left = dict(admitted.bound), []
        for loose in admitted.unbound:
            count = loose.count
            for host in loose.hosts:
                while count and self._fits(host, requests[loose.pod_set]):
                    self._take(host, requests[loose.pod_set])
                    bound[host] = add(bound.get(host, {}), requests[loose.pod_set])
                    count -= 1
            if count:
                left.append(replace(loose, count=count))
        return replace(admitted, bound=bound, unbound=tuple(left))

    def _fits(self, host: str, requests: Resources) -> bool:
        if host not in self._nodes:
            return False
        there, used = self._nodes[host].allocatable, self._used[host]
        return all(used.get(r, 0) + n <= there.get(r, 0) for r, n in requests.items() if n)

    def _take(self, host: str, amounts: Resources, *, times: int = 1) -> None:
        if host in self._used:
            self._used[host] = add(self._used[host], amounts, times=times)

    def _carry_out(self, plan: Plan) -> None:
        for admission in plan.admissions:
            self._start(self._waiting.pop(admission.uid).workload, admission)
        for eviction in plan.evictions:
            victim = self._here[eviction.uid]
            self._here[eviction.uid] = replace(victim, releasing=True)
            self._ends[eviction.uid] = self._time + GRACE
            displacer = frozenset({eviction.beneficiary})
            self._back[eviction.uid] = Pending(workload=victim.workload, displaced_by=displacer)
        self._bonds, self._reservations = plan.bonds, plan.reservations

    def _start(self, workload: Workload, admission: Admission) -> None:
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
        )
        self._here[workload.uid] = admitted
        self._ends[workload.uid] = self._end(admitted)

    def _next(self) -> float | None:
        """The time of the next step: the last of the ends that are close together; None = nothing comes."""
        ends = [end for end in self._ends.values() if end > self._time]
        times = [*ends, *(b.deadline for b in self._bonds), *(r.start for r in self._reservations)]
        for admitted in self._here.values():
            if admitted.workload.queue in self._snapshot.tree:
                least = self._snapshot.tree.policy(admitted.workload.queue).min_runtime
                times.append(admitted.since + (least or 0.0))
        first = min((t for t in times if t > self._time), default=inf)
        if first == inf:
            return None
        until = first + max(STEP, SLACK * (first - self._began))
        return max((end for end in ends if end <= until), default=first)

    def _pass_to(self, at: float) -> None:
        self._time = at
        for uid in [uid for uid, end in self._ends.items() if end <= at]:
            del self._ends[uid]
            for host, amounts in self._here.pop(uid).bound.items():
                self._take(host, amounts, times=-1)
            if uid in self._back:
                self._waiting[uid] = self._back.pop(uid)


def main() -> None:
    """A stored cycle on stdin, start ranges by uid as JSON on stdout."""
    os.nice(10)
    asked = decode(sys.stdin.buffer.read(), name="stdin")
    found = forecast(asked.snapshot, now=asked.now, seed=asked.seed)
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()

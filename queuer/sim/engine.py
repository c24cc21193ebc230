"""The virtual cluster: time moves from event to event, and at each moment cycles run until one changes
nothing.

At one time: ends, landings, departures, events, submissions, in this order, then cycles. Pods land where the plan
puts them, at once or `landing` seconds after the start; the pods of an evicted or deleted job are gone after `grace`
seconds. Every moment is checked: no node holds more than it has.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from queuer.domain.assignments import Admission, Bond, Reservation
from queuer.domain.document import parse_queue
from queuer.domain.errors import QueuerError
from queuer.domain.estimates import Estimates
from queuer.domain.nodes import Node
from queuer.domain.past import HORIZON, Interval, Past, half_lives, past_use
from queuer.domain.quantity import Resources, add
from queuer.domain.queue import ROOT, QueueTree
from queuer.domain.workload import demand_of
from queuer.sim.consistent import matches
from queuer.sim.jobs import Job, Stage, admitted_of, hosts_of, interval_of, job_of
from queuer.sim.scenario import Event, Scenario
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Budget, NodeState, Pending, Plan, Snapshot
from queuer.solver.stored import StoredCycle

Record = Callable[[StoredCycle], None]
CYCLES = 1_000
"""A time at which more cycles than this change something never settles."""


class SimulationFault(QueuerError):
    """The decision broke the virtual cluster: too much on a node, or no rest."""

    code = "simulation_fault"


class Simulation:
    """One run of a scenario. `advance` yields the times at which everything has settled. `record` gets every cycle."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        budget: Budget | None = None,
        record: Record | None = None,
        decide: Callable[..., Plan] = decide,
        landing: float = 0.0,
    ) -> None:
        """`decide`: who decides, to be watched or timed. `landing`: seconds from a start until its pods are bound; its
        run begins then.
        """
        self.scenario = scenario
        self.jobs: dict[str, Job] = {
            s.workload.uid: job_of(s, scenario, number=i) for i, s in enumerate(scenario.stories)
        }
        self.plan: Plan | None = None
        self.time = 0.0
        self.cycles = 0
        self.partial: list[str] = []
        self.admissions: list[tuple[float, str]] = []
        self.estimates = Estimates()
        self._seed = seed
        self._budget = budget or Budget()
        self._record = record
        self._decide, self._landing = decide, landing
        self._arrays: Arrays | None = None
        self._nodes: dict[str, Node] = {n.name: n for n in scenario.nodes}
        self._queues = {path: dict(body) for path, body in scenario.queues.items()}
        self._tree = self._build_tree()
        self._events = sorted(scenario.events, key=lambda e: e.at)
        self._memory = HORIZON * _longest_half_life(scenario)
        self._past: deque[Interval] = deque()
        self._bonds: tuple[Bond, ...] = ()
        self._reservations: tuple[Reservation, ...] = ()
        self._active = [j for j in self.jobs.values() if j.stage is not Stage.FUTURE]
        to_come = (j for j in self.jobs.values() if j.stage is Stage.FUTURE)
        self._to_come = deque(sorted(to_come, key=lambda j: j.workload.submitted))

    def advance(self, stops: Iterable[float]) -> Iterable[float]:
        """Run to the end, yielding each time after it has settled; `stops` are judged even if nothing
        happens.
        """
        marks = sorted(set(stops))
        at: float | None = 0.0
        while at is not None and at <= self.scenario.until:
            self.time = at
            self._settle()
            yield at
            at = self._next(marks)

    def used(self, path: str, resource: str) -> int:
        """What admitted and leaving work of a subtree uses."""
        return sum(
            demand_of(j.workload.pod_sets, j.counts()).get(resource, 0)
            for j in self.jobs.values()
            if j.present and f"{j.workload.queue}.".startswith(f"{path}.")
        )

    # Time

    def _next(self, marks: list[float]) -> float | None:
        times = [t for t in marks if t > self.time]
        times += [e.at for e in self._events if e.at > self.time]
        if self._to_come:
            times.append(self._to_come[0].workload.submitted)
        for job in self._active:
            if job.stage in (Stage.LEAVING, Stage.ENDING):
                times.append(job.gone)
            elif job.stage is Stage.RUNNING:
                least = (
                    self._tree.policy(job.workload.queue).min_runtime
                    if job.workload.queue in self._tree
                    else None
                )
                times += [t for t in (job.end, job.since + (least or 0.0), job.landed) if t is not None]
            elif job.stage is Stage.WAITING and job.workload.queue in self._tree:
                most = self._tree.policy(job.workload.queue).max_wait
                times += [] if most is None else [job.workload.submitted + most]
        times += [b.deadline for b in self._bonds]
        times += [t for r in self._reservations for t in (r.start, r.expires)]
        return min((t for t in times if t > self.time), default=None)

    def _settle(self) -> None:
        for job in self._active:
            end = job.end
            if end is not None and end <= self.time:
                self._leave(job, Stage.ENDED)
                self._learn(job)
            elif job.landed <= self.time:
                job.hosts = {}
        self._depart()
        for event in [e for e in self._events if e.at <= self.time]:
            self._events.remove(event)
            self._happen(event)
        self._depart()
        self._arrive()
        self._active = [j for j in self._active if j.stage is not Stage.ENDED]
        for _ in range(CYCLES):
            if not self._cycle():
                return
            self._depart()
        raise SimulationFault(f"{self.scenario.name}: no rest at {self.time:g} s after {CYCLES} cycles")

    def _learn(self, job: Job) -> None:
        """Remember how long it ran. The first run of a queue tells those who had no estimate."""
        if self.estimates.learn(job.workload, self.time - max(job.since, job.landed)):
            for other in self._active:
                if other.workload.queue == job.workload.queue and other.stage is not Stage.ENDED:
                    self._estimate(other)

    def _estimate(self, job: Job) -> None:
        job.workload = replace(job.workload, estimate=self.estimates.of(job.workload))

    def _arrive(self) -> None:
        while self._to_come and self._to_come[0].workload.submitted <= self.time:
            job = self._to_come.popleft()
            if job.stage is Stage.FUTURE:
                job.stage = Stage.WAITING
                self._estimate(job)
                insort(self._active, job, key=lambda j: j.number)

    def _depart(self) -> None:
        for job in self._active:
            if job.stage is Stage.LEAVING and job.gone <= self.time:
                self._leave(job, Stage.WAITING)
            elif job.stage is Stage.ENDING and job.gone <= self.time:
                self._leave(job, Stage.ENDED)

    def _leave(self, job: Job, stage: Stage) -> None:
        """Its pods are gone."""
        if self._memory:
            self._past.append(interval_of(job, closed=self.time))
        job.stage, job.pods, job.hosts = stage, {}, {}

    # Events

    def _happen(self, event: Event) -> None:
        match event.kind:
            case "cordon" | "uncordon":
                for name in event.body:
                    self._nodes[name] = replace(self._nodes[name], unschedulable=event.kind == "cordon")
            case "fail":
                for name in event.body:
                    self._fail(name)
            case "delete":
                for job in self._named(event.body):
                    if job.stage is Stage.RUNNING:  # else its pods leave already
                        job.gone = self.time + self.scenario.grace
                    job.stage, job.hosts = Stage.ENDING if job.present else Stage.ENDED, {}
            case "hold" | "release":
                for job in self._named(event.body):
                    job.workload = replace(job.workload, hold=event.kind == "hold")
            case "queue":
                body = dict(event.body)
                path = str(body.pop("path"))
                self._queues[path] = {**self._queues.get(path, {}), **body}
                self._tree = self._build_tree()

    def _fail(self, name: str) -> None:
        del self._nodes[name]
        for job in self.jobs.values():
            if any(name in nodes for nodes in job.pods.values()):
                for nodes in job.pods.values():
                    nodes.pop(name, None)
                if job.stage is Stage.RUNNING:
                    self._evict(job, by=None)
                    job.first = True

    def _named(self, patterns: Iterable[str]) -> list[Job]:
        return [j for uid, j in self.jobs.items() if any(matches(uid, p) for p in patterns)]

    def _build_tree(self) -> QueueTree:
        bodies = dict(self._queues)
        for path in list(bodies):
            while "." in path:
                path = path.rpartition(".")[0]
                bodies.setdefault(path, {})
        bodies.setdefault(ROOT, {})
        return QueueTree.of(parse_queue(path, body) for path, body in bodies.items())

    # Cycles

    def _cycle(self) -> bool:
        """Decide and act; whether anything changed. Where nobody waits there is nothing to decide."""
        if not any(j.stage in (Stage.WAITING, Stage.LEAVING) for j in self._active):
            self._bonds, self._reservations = (), ()
            self._check()
            return False
        snapshot = self.snapshot()
        self._arrays = Arrays.of(snapshot) if self._arrays is None else self._arrays.follow(snapshot)
        plan = self._decide(
            snapshot,
            now=self.time,
            seed=self._seed,
            budget=self._budget,
            arrays=self._arrays,
        )
        if self._record is not None:
            self._record(
                StoredCycle(snapshot=snapshot, now=self.time, seed=self._seed, budget=self._budget, plan=plan)
            )
        self.cycles += 1
        self.plan = plan
        for admission in plan.admissions:
            self._admit(admission)
        for eviction in plan.evictions:
            self._evict(self.jobs[eviction.uid], by=eviction.beneficiary)
        changed = bool(
            plan.admissions or plan.evictions or {b.uid for b in plan.bonds} != {b.uid for b in self._bonds}
        )
        self._bonds, self._reservations = plan.bonds, plan.reservations
        self._check()
        return changed

    def snapshot(self) -> Snapshot:
        """What the decision is given at this moment."""
        used = self._used(landing=False)
        return Snapshot(
            nodes=tuple(NodeState(node=n, used=used[n.name]) for n in self._nodes.values()),
            tree=self._tree,
            topology=self.scenario.topology,
            flavors=self.scenario.flavors,
            admitted=tuple(admitted_of(j, now=self.time) for j in self._active if j.present),
            pending=tuple(
                Pending(workload=j.workload, first=j.first, displaced_by=j.displaced_by)
                for j in self._active
                if j.stage is Stage.WAITING
            ),
            bonds=self._bonds,
            reservations=self._reservations,
            past=self._past_use(),
        )

    def _past_use(self) -> Past:
        while self._past and (self._past[0].closed or 0.0) <= self.time - self._memory:
            self._past.popleft()
        if not half_lives(self._tree):
            return {}
        open_ones = (interval_of(j) for j in self._active if j.present)
        return past_use(self._tree, (*self._past, *open_ones), now=self.time)

    def _used(self, *, landing: bool = True) -> dict[str, dict[str, int]]:
        """What all pods request, by node; with those that are still to land, where they are planned."""
        used: dict[str, dict[str, int]] = {name: {} for name in self._nodes}
        for name, amounts in self.scenario.foreign:
            _put(used, name, amounts)
        for job in self._active:
            if job.present and (landing or not job.hosts):
                for name, got in job.on_nodes().items():
                    _put(used, name, got)
        return used

    def _admit(self, admission: Admission) -> None:
        uid, rows = admission.uid, admission.assignments
        job = self.jobs[uid]
        job.stage, job.since, job.landed, job.first = (
            Stage.RUNNING,
            self.time,
            self.time + self._landing,
            False,
        )
        job.pods = {a.pod_set: dict(a.nodes) for a in rows}
        job.flavors = {a.pod_set: a.flavor for a in rows}
        job.hosts = {a.pod_set: hosts_of(a, self._nodes.values()) for a in rows} if self._landing else {}
        job.started = self.time if job.started is None else job.started
        job.guess = job.workload.estimate
        self.admissions.append((self.time, uid))
        counts = job.counts()
        for pod_set in job.workload.pod_sets:
            if not (pod_set.min_count or pod_set.count) <= counts[pod_set.name] <= pod_set.count:
                self.partial.append(uid)

    def _evict(self, job: Job, *, by: str | None) -> None:
        job.stage, job.gone, job.hosts = Stage.LEAVING, self.time + self.scenario.grace, {}
        job.evictions.append(self.time)
        job.displaced_by = frozenset() if by is None else frozenset({by})

    def _check(self) -> None:
        for name, amounts in self._used().items():
            for resource, amount in amounts.items():
                there = self._nodes[name].allocatable.get(resource, 0)
                if amount > there:
                    raise SimulationFault(
                        f"{self.scenario.name} at {self.time:g} s: {name} holds {amount} of {there} {resource}"
                    )


def _longest_half_life(scenario: Scenario) -> float:
    """Seconds; of all that the scenario's queues have or will be given, 0 = none."""
    later = (dict(e.body) for e in scenario.events if e.kind == "queue")
    bodies = [*scenario.queues.items(), *((str(body.pop("path")), body) for body in later)]
    return max((parse_queue(path, body).policy.half_life or 0.0 for path, body in bodies), default=0.0)


def _put(used: dict[str, dict[str, int]], name: str, amounts: Resources) -> None:
    if name in used:
        used[name] = add(used[name], amounts)

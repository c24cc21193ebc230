"""The virtual cluster: time moves from event to event, and at each moment cycles run until one changes
nothing.

At one time: ends, landings, departures, events, submissions, in this order, then cycles. Pods land where the plan
puts them, at once or `landing` seconds after the start. The pods of an evicted or deleted job are gone after `grace`
seconds. Every moment is checked: no node holds more than it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf

from queuer.domain.assignments import Admission
from queuer.domain.document import parse_queue
from queuer.domain.errors import QueuerError
from queuer.domain.estimates import Estimates
from queuer.domain.past_use import HORIZON, Interval, Past, half_lives, past_use
from queuer.domain.quantity import Resources, add
from queuer.domain.queue import ROOT, QueueTree
from queuer.domain.workload import demand_of
from queuer.sim.consistent import matches
from queuer.sim.jobs import HOUR, SimulatedJob, Stage, initial_run, interval_of, job_of, run_end
from queuer.sim.scenario import Scenario, ScenarioEvent
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Plan, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.solver.world import World

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
        self.jobs: dict[str, SimulatedJob] = {
            s.workload.uid: job_of(s, number=i) for i, s in enumerate(scenario.stories)
        }
        self.plan: Plan | None = None
        self.cycles = 0
        self.partial: list[str] = []
        self.admissions: list[tuple[float, str]] = []
        self.estimates = Estimates()
        self._seed = seed
        self._budget = budget or Budget()
        self._record = record
        self._decide, self._landing = decide, landing
        self._arrays: Arrays | None = None
        self._queues = {path: dict(body) for path, body in scenario.queues.items()}
        self._events = sorted(scenario.events, key=lambda e: e.at)
        self._memory = HORIZON * _longest_half_life(scenario)
        self._past: deque[Interval] = deque()
        to_come = (job for job in self.jobs.values() if not job.arrived)
        self._to_come = deque(sorted(to_come, key=lambda job: job.workload.submitted))
        self.world = self._begin()

    def _begin(self) -> World:
        scenario, used = self.scenario, dict[str, Resources]()
        for name, amounts in scenario.foreign:
            used[name] = add(used.get(name, {}), amounts)
        snapshot = Snapshot(
            nodes=tuple(NodeState(node=node, used=used.get(node.name, {})) for node in scenario.nodes),
            tree=self._build_tree(),
            topology=scenario.topology,
            flavors=scenario.flavors,
        )
        world = World(snapshot, now=0.0, landing=self._landing, grace=scenario.grace, end_of=self._end_of)
        for job in self.jobs.values():
            if job.arrived:
                world.place(*initial_run(job.story, scenario))
        return world

    @property
    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self.world.time

    def stage(self, uid: str) -> Stage:
        """Where a job stands."""
        world, run = self.world, self.world.admitted.get(uid)
        if uid in world.waiting:
            return Stage.WAITING
        if run is None:
            return Stage.ENDED if self.jobs[uid].arrived else Stage.FUTURE
        if not run.releasing:
            return Stage.RUNNING
        return Stage.LEAVING if uid in world.returning else Stage.ENDING

    def advance(self, stops: Iterable[float]) -> Iterable[float]:
        """Run to the end, yielding each time after it has settled; `stops` are judged even if nothing
        happens.
        """
        marks = sorted(set(stops))
        at: float | None = 0.0
        while at is not None and at <= self.scenario.until:
            self._settle(at)
            yield at
            at = self._next(marks)

    def used(self, path: str, resource: str) -> int:
        """The use of admitted and leaving work in a subtree."""
        return sum(
            demand_of(run.workload.pod_sets, run.counts).get(resource, 0)
            for run in self.world.admitted.values()
            if f"{run.workload.queue}.".startswith(f"{path}.")
        )

    # Time

    def _next(self, marks: list[float]) -> float | None:
        world = self.world
        times = [*marks, *world.moments(), *(row.expires for row in world.reservations)]
        times += [event.at for event in self._events]
        if self._to_come:
            times.append(self._to_come[0].workload.submitted)
        for pending in world.waiting.values():
            workload = pending.workload
            most = world.tree.policy(workload.queue).max_wait if workload.queue in world.tree else None
            times += [] if most is None else [workload.submitted + most]
        return min((t for t in times if t > self.time), default=None)

    def _settle(self, at: float) -> None:
        self._pass_to(at)
        for event in [e for e in self._events if e.at <= at]:
            self._events.remove(event)
            self._happen(event)
        self._pass_to(at)
        self._arrive()
        for _ in range(CYCLES):
            if not self._cycle():
                return
            self._pass_to(at)
        raise SimulationFault(f"{self.scenario.name}: no rest at {at:g} s after {CYCLES} cycles")

    def _pass_to(self, at: float) -> None:
        """Let time pass. Ends are taken in the order of the story."""
        gone = self.world.pass_to(at)
        for run in sorted(gone, key=lambda run: (run.releasing, self._number(run))):
            if self._memory:
                self._past.append(interval_of(run, closed=at))
            if not run.releasing:
                self._learn(self.jobs[run.workload.uid])

    def _end_of(self, run: Admitted, bound: float) -> float:
        """The end of a run, which begins when all pods are bound."""
        runtime = self.jobs[run.workload.uid].story.runtime
        return inf if runtime is None else run_end(bound, runtime)

    def _learn(self, job: SimulatedJob) -> None:
        """Remember how long it ran. Jobs like it are estimated anew when that tells more of them."""
        news = self.estimates.learn(job.workload, self.time - job.began)
        if news is not None:
            for uid in (*self.world.waiting, *self.world.admitted):
                if news.concerns(self.jobs[uid].workload):
                    self._estimate(self.jobs[uid])

    def _estimate(self, job: SimulatedJob) -> None:
        job.workload = self.estimates.estimated(job.workload)
        self.world.update(job.workload)

    def _arrive(self) -> None:
        while self._to_come and self._to_come[0].workload.submitted <= self.time:
            job = self._to_come.popleft()
            if not job.arrived:
                job.arrived = True
                self._estimate(job)
                self.world.arrive(Pending(workload=job.workload))

    # Events

    def _happen(self, event: ScenarioEvent) -> None:
        match event.kind:
            case "cordon" | "uncordon":
                for name in event.body:
                    self.world.cordon(name, unschedulable=event.kind == "cordon")
            case "fail":
                for name in event.body:
                    for uid in self.world.lose(name):
                        self.jobs[uid].evictions.append(self.time)
            case "delete":
                for job in self._named(event.body):
                    job.arrived = True
                    self.world.delete(job.uid)
            case "hold" | "release":
                for job in self._named(event.body):
                    job.workload = replace(job.workload, hold=event.kind == "hold")
                    self.world.update(job.workload)
            case "queue":
                body = dict(event.body)
                path = str(body.pop("path"))
                self._queues[path] = {**self._queues.get(path, {}), **body}
                self.world.tree = self._build_tree()

    def _named(self, patterns: Iterable[str]) -> list[SimulatedJob]:
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
        world = self.world
        if not (world.waiting or world.returning):
            world.bonds, world.reservations = (), ()
            self._check()
            return False
        snapshot = self.snapshot()
        self._arrays = Arrays.of(snapshot) if self._arrays is None else self._arrays.follow(snapshot)
        now, seed, budget = self.time, self._seed, self._budget
        plan = self._decide(snapshot, now=now, seed=seed, budget=budget, arrays=self._arrays)
        if self._record is not None:
            self._record(StoredCycle(snapshot=snapshot, now=now, seed=seed, budget=budget, plan=plan))
        self.cycles += 1
        self.plan = plan
        bound = {bond.uid for bond in world.bonds}
        world.apply(plan)
        for admission in plan.admissions:
            self._started(admission)
        for eviction in plan.evictions:
            self.jobs[eviction.uid].evictions.append(self.time)
        self._check()
        return bool(plan.admissions or plan.evictions or {bond.uid for bond in plan.bonds} != bound)

    def snapshot(self) -> Snapshot:
        """The input of a decision at this moment, in the order of the story."""
        made = self.world.snapshot()
        admitted = [self._recounted(run) for run in sorted(made.admitted, key=self._number)]
        pending = tuple(sorted(made.pending, key=self._number))
        return replace(made, admitted=tuple(admitted), pending=pending, past=self._past_use(admitted))

    def _number(self, row: Admitted | Pending) -> int:
        return self.jobs[row.workload.uid].number

    def _recounted(self, run: Admitted) -> Admitted:
        """With its evictions of the last hour."""
        recent = sum(at > self.time - HOUR for at in self.jobs[run.workload.uid].evictions)
        return run if run.evicted == recent else replace(run, evicted=recent)

    def _past_use(self, admitted: Sequence[Admitted]) -> Past:
        while self._past and (self._past[0].closed or 0.0) <= self.time - self._memory:
            self._past.popleft()
        tree = self.world.tree
        if not half_lives(tree):
            return {}
        return past_use(tree, (*self._past, *map(interval_of, admitted)), now=self.time)

    def _started(self, admission: Admission) -> None:
        job, run = self.jobs[admission.uid], self.world.admitted[admission.uid]
        job.began = self.time + self._landing
        job.started = self.time if job.started is None else job.started
        job.guess = job.workload.estimate
        self.admissions.append((self.time, job.uid))
        for pod_set in job.workload.pod_sets:
            if not (pod_set.min_count or pod_set.count) <= run.counts.get(pod_set.name, 0) <= pod_set.count:
                self.partial.append(job.uid)

    def _check(self) -> None:
        landing = self.world.to_land()
        for name, state in self.world.nodes.items():
            for resource, amount in add(state.used, landing.get(name, {})).items():
                there = state.node.allocatable.get(resource, 0)
                if amount > there:
                    raise SimulationFault(
                        f"{self.scenario.name} at {self.time:g} s: {name} holds {amount} of {there} {resource}"
                    )


def _longest_half_life(scenario: Scenario) -> float:
    """Seconds; of all that the scenario's queues have or will be given, 0 = none."""
    later = (dict(e.body) for e in scenario.events if e.kind == "queue")
    bodies = [*scenario.queues.items(), *((str(body.pop("path")), body) for body in later)]
    return max((parse_queue(path, body).policy.half_life or 0.0 for path, body in bodies), default=0.0)

"""A world that lives through cycles: plans are carried out by a scheduler that picks any host inside the pins, pods
land late and are lost, victims leave late, gangs end and arrive. Every plan is verified, and every pod must find a
host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from queuer.domain.quantity import add
from queuer.domain.queue import QueueTree
from queuer.domain.workload import PodSet, Workload
from queuer.solver.decide import decide
from queuer.solver.problem import (
    Admitted,
    Assignment,
    Bond,
    Budget,
    NodeState,
    Pending,
    Plan,
    Reservation,
    Snapshot,
    Turn,
    Unbound,
    waits_for,
)
from queuer.solver.verify import verify
from queuer.solver.verify.case import Case
from tests.solver.cases import seeded

Record = TypeVar("Record")
STEP = 30.0


@dataclass
class Pod:
    """A pod of a gang: where it may go, and where it is."""

    pod_set: PodSet
    pin: frozenset[str]
    node: str | None = None


@dataclass
class Run:
    """An admitted gang."""

    workload: Workload
    rows: tuple[Assignment, ...]
    since: float
    turn: Turn
    pods: list[Pod]
    ends: float
    came: bool = False  # whether it has landed once
    displaced_by: frozenset[str] = frozenset()
    evicted: bool = False
    releasing: bool = False
    gone_by: float | None = None
    told: bool = True

    @property
    def landed(self) -> bool:
        """Whether all pods have a node."""
        return all(pod.node for pod in self.pods)


@dataclass
class Life:
    """The world between two cycles. `expecting`: jobs are deleted, too, and until when pods are there is known of most
    that leave. `losses`: by which pods are lost of gangs that had landed, and room gets free while others land.
    """

    random: Random
    first: Snapshot
    runs: dict[str, Run] = field(default_factory=dict)
    waiting: dict[str, Pending] = field(default_factory=dict)
    bonds: tuple[Bond, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    now: float = 0.0
    born: int = 0
    looks: int = 0
    expecting: bool = False
    losses: Random | None = None

    def __post_init__(self) -> None:
        root = self.first.tree.queues["root"]
        patient = replace(
            root.policy,
            max_wait=self.random.choice((None, STEP, 4 * STEP)),
            reservations=self.random.choice((0, 1, 1, 2, 3)),
        )
        others = [queue for path, queue in self.first.tree.queues.items() if path != "root"]
        self.first = replace(self.first, tree=QueueTree.of([replace(root, policy=patient), *others]))
        self.waiting = {p.workload.uid: p for p in self.first.pending}
        for a in self.first.admitted:
            pods = [Pod(a.workload.pod_sets[0], frozenset({n}), n) for n in a.bound]
            only = a.workload.pod_sets[0].name
            row = Assignment(pod_set=only, flavor=a.flavors[only], nodes=dict.fromkeys(a.bound, 1))
            ends = self.random.choice((90.0, 300.0, 900.0))
            told = self.random.random() < 0.5
            self.runs[a.workload.uid] = Run(
                a.workload, (row,), a.since, Turn(0, 0), pods, ends, came=True, told=told
            )

    def snapshot(self) -> Snapshot:
        """What the decision sees."""
        used: dict[str, Mapping[str, int]] = {}
        for run in self.runs.values():
            for pod in run.pods:
                if pod.node:
                    used[pod.node] = add(used.get(pod.node, {}), pod.pod_set.requests)
        known = {*self.waiting, *self.runs}
        return replace(
            self.first,
            nodes=tuple(NodeState(node=s.node, used=used.get(s.node.name, {})) for s in self.first.nodes),
            admitted=tuple(self._admitted(run) for run in self.runs.values()),
            pending=tuple(self.waiting.values()),
            bonds=tuple(b for b in self.bonds if b.uid in known),
            reservations=tuple(r for r in self.reservations if r.uid in self.waiting),
        )

    def _admitted(self, run: Run) -> Admitted:
        bound: dict[str, Mapping[str, int]] = {}
        loose: dict[tuple[str, frozenset[str]], int] = {}
        for pod in run.pods:
            if pod.node:
                bound[pod.node] = add(bound.get(pod.node, {}), pod.pod_set.requests)
            else:
                key = (pod.pod_set.name, pod.pin - self._taken(run, pod.pod_set))
                loose[key] = loose.get(key, 0) + 1
        return Admitted(
            workload=run.workload,
            counts={row.pod_set: row.count for row in run.rows},
            flavors={row.pod_set: row.flavor for row in run.rows},
            since=run.since,
            bound=bound,
            unbound=()
            if run.releasing
            else tuple(
                Unbound(pod_set=name, count=n, hosts=tuple(sorted(pin))) for (name, pin), n in loose.items()
            ),
            releasing=run.releasing,
            gone_by=run.gone_by,
            expected_end=run.ends if run.told else None,
            displaced_by=run.displaced_by,
            turn=None if run.came and run.landed else run.turn,
        )

    @staticmethod
    def _taken(run: Run, pod_set: PodSet) -> set[str | None]:
        """Hosts on which a pod lies that others of its set keep off."""
        return {p.node for p in run.pods if p.pod_set is pod_set} if pod_set.exclusive_host else set()

    def cycle(self, budget: Budget) -> tuple[Snapshot, Plan]:
        """Decide, verify, carry out, and let time pass."""
        snap = self.snapshot()
        plan = decide(snap, now=self.now, seed=0, budget=budget)
        broken = verify(snap, plan, now=self.now)
        assert broken == (), [str(b) for b in broken]
        self.looks += 1
        self._carry_out(snap, plan)
        self._land()
        self._pass_time()
        return snap, plan

    def _carry_out(self, snap: Snapshot, plan: Plan) -> None:
        case = Case(snap, plan, self.now)
        for admission in plan.admissions:
            pending = self.waiting.pop(admission.uid)
            workload = pending.workload
            sets = {p.name: p for p in workload.pod_sets}
            pods = [
                Pod(sets[row.pod_set], case.pin(sets[row.pod_set], row))
                for row in admission.assignments
                for _ in range(row.count)
            ]
            lasts = workload.estimate or self.random.choice((60.0, 200.0, 600.0))
            ends = self.now + lasts
            told = workload.estimate is not None
            turn = Turn(self.looks, admission.wave, held=admission.wave > 0)
            run = Run(workload, admission.assignments, self.now, turn, pods, ends, told=told)
            self.runs[admission.uid] = replace(run, displaced_by=pending.displaced_by)
        for eviction in plan.evictions:
            run = self.runs[eviction.uid]
            run.displaced_by, run.evicted = frozenset({eviction.beneficiary}), True
            self._release(run)
        self.bonds, self.reservations = plan.bonds, plan.reservations

    def _release(self, run: Run) -> None:
        run.releasing = True
        if self.expecting:
            run.gone_by = self.random.choice(
                (None, self.now + STEP, self.now + 2 * STEP, self.now + 12 * STEP)
            )

    def _land(self) -> None:
        """Some or all pods of those that wait for nobody find hosts, in any order; then those that waited for these."""
        late = self.random.random() < 0.3
        left = [run for run in self.runs.values() if not run.landed and not run.releasing]
        while ready := [
            run for run in left if not any(self._waits(run, other) for other in self.runs.values())
        ]:
            left = [run for run in left if run not in ready]
            for run in ready:
                run.turn = run.turn._replace(held=False)
            pods = [(run, pod) for run in ready for pod in run.pods if pod.node is None]
            self.random.shuffle(pods)
            for run, pod in pods:
                if late and self.random.random() < 0.5:
                    continue
                if self.losses is not None:
                    self._free_room(self.losses)
                fits = [n for n in sorted(pod.pin) if self._fits(run, pod, n)]
                assert fits, f"a pod of {run.workload.uid} finds no host in {sorted(pod.pin)}"
                pod.node = self.random.choice(fits)
        for run in self.runs.values():
            run.came |= run.landed

    def _waits(self, run: Run, other: Run) -> bool:
        """As the controller holds it back."""
        if run is other or other.landed or other.releasing or not waits_for(run.turn, other.turn):
            return False
        mine = {h for pod in run.pods for h in pod.pin}
        return any(pod.pin & mine for pod in other.pods)

    def _fits(self, run: Run, pod: Pod, name: str) -> bool:
        node = next(s.node for s in self.first.nodes if s.node.name == name)
        left = dict(node.allocatable)
        for other in self.runs.values():
            for there in other.pods:
                if there.node == name:
                    if other is run and there.pod_set is pod.pod_set and pod.pod_set.exclusive_host:
                        return False
                    for resource, amount in there.pod_set.requests.items():
                        left[resource] -= amount
        return all(left.get(r, 0) >= n for r, n in pod.pod_set.requests.items() if n)

    def _pass_time(self) -> None:
        self.now += STEP
        for uid, run in list(self.runs.items()):
            if run.releasing and self.random.random() < 0.6:
                self._gone(run)
            elif self.expecting and not run.releasing and run.landed and self.random.random() < 0.1:
                self._release(run)
            elif not run.releasing and run.landed and run.ends <= self.now and self.random.random() < 0.7:
                del self.runs[uid]
        self._cordon()
        if self.losses is not None:
            self._lose(self.losses)
        fresh = seeded(self.random.randrange(10**6)).pending
        leaves = self.first.tree.leaves
        for pending in fresh[: self.random.randrange(3)]:
            self.born += 1
            workload = replace(
                pending.workload,
                uid=f"n{self.born}",
                name=f"n{self.born}",
                queue=self.random.choice(leaves),
                submitted=self.now,
                estimate=self.random.choice((None, 60.0, 300.0)),
                pod_sets=tuple(self._elastic(p) for p in pending.workload.pod_sets),
                preferred=self.random.choice((None, None, "rack")),
            )
            self.waiting[workload.uid] = replace(pending, workload=workload)

    def _gone(self, run: Run) -> None:
        del self.runs[run.workload.uid]
        if run.evicted:
            self.waiting[run.workload.uid] = Pending(workload=run.workload, displaced_by=run.displaced_by)

    def _free_room(self, random: Random) -> None:
        """Who is leaving goes, or who runs ends, while others land."""
        gone = [run for run in self.runs.values() if run.releasing or (run.came and run.landed)]
        if gone and random.random() < 0.2:
            self._gone(random.choice(gone))

    def _cordon(self) -> None:
        """Now and then a node is closed or opened; not while pods are on their way to it."""
        awaited = {h for run in self.runs.values() for pod in run.pods if pod.node is None for h in pod.pin}
        if self.random.random() < 0.2:
            at = self.random.randrange(len(self.first.nodes))
            state = self.first.nodes[at]
            if state.node.name not in awaited:
                node = replace(state.node, unschedulable=not state.node.unschedulable)
                changed = replace(state, node=node)
                self.first = replace(
                    self.first, nodes=(*self.first.nodes[:at], changed, *self.first.nodes[at + 1 :])
                )

    def _lose(self, random: Random) -> None:
        """A pod or two of a gang are lost and come again; not while others are on their way to its hosts, who were not
        told, nor where it lay on a node that is closed now.
        """
        closed = {s.node.name for s in self.first.nodes if s.node.unschedulable}
        for run in self.runs.values():
            if random.random() < 0.8 or run.releasing or not run.landed:
                continue
            hosts = {h for pod in run.pods for h in pod.pin}
            if any(pod.node is None and pod.pin & hosts for one in self.runs.values() for pod in one.pods):
                continue
            for pod in random.sample(run.pods, min(len(run.pods), random.choice((1, 2)))):
                if pod.node not in closed:
                    pod.node = None

    def _elastic(self, pod_set: PodSet) -> PodSet:
        least = self.random.choice((None, None, 1))
        return replace(pod_set, min_count=least)


def live(seed: int, *, cycles: int, budget: Budget) -> list[tuple[Snapshot, Plan, float]]:
    """The cycles of one life."""
    life = Life(
        Random(seed),
        seeded(seed),
        expecting=seed % 2 == 1,
        losses=Random(f"losses {seed}") if seed % 3 == 0 else None,
    )
    found = []
    for _ in range(cycles):
        at = life.now
        found.append((*life.cycle(budget), at))
    return found


def kept(before: Snapshot | None, now: Snapshot) -> Snapshot:
    """The snapshot with the records of the one before where they are equal, as who keeps records would make it."""
    if before is None:
        return now
    ran = {a.workload.uid: a for a in before.admitted}
    waited = {p.workload.uid: p for p in before.pending}
    return replace(
        now,
        admitted=tuple(same(ran.get(a.workload.uid), a) for a in now.admitted),
        pending=tuple(same(waited.get(p.workload.uid), p) for p in now.pending),
    )


def same(old: Record | None, new: Record) -> Record:
    return old if old is not None and old == new else new

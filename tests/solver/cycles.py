"""A world that lives through cycles. A scheduler that picks any host inside the pins carries plans out. Pods
land late, victims leave late, gangs end and arrive. Every plan is verified, and every pod must find a host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from queuer.domain.assignments import Assignment, Bond, EvictionRule, Reservation
from queuer.domain.nodes import Node
from queuer.domain.quantity import add
from queuer.domain.workload import PodSet, Workload
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Plan, Snapshot, Unbound
from queuer.solver.verify import verify
from tests.solver.strict import passers
from tests.solver.worlds import world

STEP, HOUR = 30.0, 3600.0


@dataclass
class Pod:
    """A pod of a gang: where it may go, and where it is."""

    pod_set: PodSet
    pin: frozenset[str]
    node: str | None = None


@dataclass
class Run:
    """An admitted gang. `told`: whether its end is known."""

    workload: Workload
    rows: tuple[Assignment, ...]
    since: float
    pods: list[Pod]
    ends: float
    told: bool
    displaced_by: frozenset[str] = frozenset()
    evicted: bool = False
    releasing: bool = False
    gone_by: float | None = None

    @property
    def landed(self) -> bool:
        """Whether all pods have a node."""
        return all(pod.node for pod in self.pods)


@dataclass(frozen=True, kw_only=True)
class Evicted:
    """Evictions with their time, beneficiary and rule."""

    at: float
    uid: str
    beneficiary: str
    rule: EvictionRule = EvictionRule.PREEMPT


@dataclass
class Life:
    """The world between two cycles. `come`: the most gangs that arrive in one. `arrays` follow along."""

    random: Random
    first: Snapshot
    come: int = 2
    runs: dict[str, Run] = field(default_factory=dict)
    waiting: dict[str, Pending] = field(default_factory=dict)
    bonds: tuple[Bond, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    evictions: list[Evicted] = field(default_factory=list)
    arrays: Arrays | None = None
    now: float = 0.0
    born: int = 0

    @classmethod
    def of(cls, seed: int, *, come: int = 2) -> Life:
        """A small world at its beginning: nothing runs yet."""
        first = world(seed, running=0)
        life = cls(Random(seed), replace(first, pending=()), come=come)
        life.waiting = {p.workload.uid: p for p in first.pending}
        return life

    def snapshot(self) -> Snapshot:
        """The decision's snapshot."""
        used = {s.node.name: s.used for s in self.first.nodes}
        for run in self.runs.values():
            for pod in run.pods:
                if pod.node:
                    used[pod.node] = add(used[pod.node], pod.pod_set.requests)
        return replace(
            self.first,
            nodes=tuple(NodeState(node=s.node, used=used[s.node.name]) for s in self.first.nodes),
            admitted=tuple(self._admitted(run) for run in self.runs.values()),
            pending=tuple(self.waiting.values()),
            bonds=tuple(b for b in self.bonds if b.uid in self.waiting),
            reservations=tuple(r for r in self.reservations if r.uid in self.waiting),
        )

    def _admitted(self, run: Run) -> Admitted:
        bound: dict[str, Mapping[str, int]] = {}
        loose: dict[tuple[str, frozenset[str]], int] = {}
        for pod in run.pods:
            if pod.node:
                bound[pod.node] = add(bound.get(pod.node, {}), pod.pod_set.requests)
            elif not run.releasing:
                taken = {p.node for p in run.pods if p.pod_set is pod.pod_set and pod.pod_set.exclusive_host}
                key = (pod.pod_set.name, pod.pin - taken)
                loose[key] = loose.get(key, 0) + 1
        uid = run.workload.uid
        return Admitted(
            workload=run.workload,
            counts={row.pod_set: row.count for row in run.rows},
            flavors={row.pod_set: row.flavor for row in run.rows},
            since=run.since,
            bound=bound,
            unbound=tuple(
                Unbound(pod_set=name, count=n, hosts=tuple(sorted(pin))) for (name, pin), n in loose.items()
            ),
            releasing=run.releasing,
            gone_by=run.gone_by,
            expected_end=run.ends if run.told else None,
            displaced_by=run.displaced_by,
            evicted=sum(e.uid == uid and e.at > self.now - HOUR for e in self.evictions),
        )

    def cycle(self, budget: Budget) -> tuple[Snapshot, Plan]:
        """Decide, verify, carry out, and let time pass."""
        snap = self.snapshot()
        self.arrays = Arrays.of(snap) if self.arrays is None else self.arrays.follow(snap)
        plan = decide(snap, now=self.now, seed=0, budget=budget, arrays=self.arrays)
        broken = verify(snap, plan, now=self.now)
        assert broken == (), [str(b) for b in broken]
        assert not passers(snap, plan)
        self._carry_out(plan)
        self._land()
        self._pass_time()
        return snap, plan

    def _carry_out(self, plan: Plan) -> None:
        for admission in plan.admissions:
            pending = self.waiting.pop(admission.uid)
            workload = pending.workload
            sets = {p.name: p for p in workload.pod_sets}
            pods = [
                Pod(sets[row.pod_set], self._pin(sets[row.pod_set], row))
                for row in admission.assignments
                for _ in range(row.count)
            ]
            lasts = workload.estimate or self.random.choice((60.0, 200.0, 600.0))
            self.runs[admission.uid] = Run(
                workload,
                admission.assignments,
                since=self.now,
                pods=pods,
                ends=self.now + lasts,
                told=workload.estimate is not None,
                displaced_by=pending.displaced_by,
            )
        for eviction in plan.evictions:
            run = self.runs[eviction.uid]
            run.displaced_by, run.evicted, run.releasing = frozenset({eviction.beneficiary}), True, True
            run.gone_by = self.random.choice((None, self.now + STEP, self.now + 2 * STEP))
            one = Evicted(at=self.now, uid=eviction.uid, beneficiary=eviction.beneficiary, rule=eviction.rule)
            self.evictions.append(one)
        self.bonds, self.reservations = plan.bonds, plan.reservations

    def _pin(self, pod_set: PodSet, row: Assignment) -> frozenset[str]:
        """Where kube-scheduler may put a pod, resources aside."""

        def takes(node: Node) -> bool:
            return row.selector.items() <= node.labels.items() and node.accepts(pod_set.terms)

        names = frozenset(s.node.name for s in self.first.nodes if takes(s.node))
        return names if row.hosts is None else names & frozenset(row.hosts)

    def _land(self) -> None:
        """Some or all pods find hosts, in any order."""
        late = self.random.random() < 0.3
        pods = [
            (run, pod)
            for run in self.runs.values()
            if not run.releasing
            for pod in run.pods
            if pod.node is None
        ]
        self.random.shuffle(pods)
        for run, pod in pods:
            if late and self.random.random() < 0.5:
                continue
            fits = [n for n in sorted(pod.pin) if self._fits(run, pod, n)]
            assert fits, f"a pod of {run.workload.uid} finds no host in {sorted(pod.pin)}"
            pod.node = self.random.choice(fits)

    def _fits(self, run: Run, pod: Pod, name: str) -> bool:
        state = next(s for s in self.first.nodes if s.node.name == name)
        left = add(state.node.allocatable, state.used, times=-1)
        for other in self.runs.values():
            for there in other.pods:
                if there.node == name:
                    if other is run and there.pod_set is pod.pod_set and pod.pod_set.exclusive_host:
                        return False
                    left = add(left, there.pod_set.requests, times=-1)
        return all(left.get(r, 0) >= n for r, n in pod.pod_set.requests.items() if n)

    def _pass_time(self) -> None:
        self.now += STEP
        for uid, run in list(self.runs.items()):
            if run.releasing and self.random.random() < 0.6:
                del self.runs[uid]
                if run.evicted:
                    self.waiting[uid] = Pending(workload=run.workload, displaced_by=run.displaced_by)
            elif not run.releasing and run.landed and run.ends <= self.now and self.random.random() < 0.7:
                del self.runs[uid]
        self._cordon()
        for _ in range(self.random.randint(0, self.come)):
            self._arrive()

    def _cordon(self) -> None:
        """Now and then a node is closed or opened; not while pods are on their way to it."""
        awaited = {h for run in self.runs.values() for pod in run.pods if pod.node is None for h in pod.pin}
        at = self.random.randrange(len(self.first.nodes))
        state = self.first.nodes[at]
        if self.random.random() < 0.2 and state.node.name not in awaited:
            node = replace(state.node, unschedulable=not state.node.unschedulable)
            nodes = list(self.first.nodes)
            nodes[at] = replace(state, node=node)
            self.first = replace(self.first, nodes=tuple(nodes))

    def _arrive(self) -> None:
        """One more gang waits."""
        self.born += 1
        drawn = world(self.random.randrange(10**6), running=0).pending[0]
        workload = replace(
            drawn.workload,
            uid=f"n{self.born}",
            name=f"n{self.born}",
            queue=self.random.choice(self.first.tree.leaves),
            submitted=self.now,
            hold=False,
        )
        self.waiting[workload.uid] = Pending(workload=workload)

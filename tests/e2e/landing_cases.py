"""Random fragmented small clusters with pods that are not ours, and what the decision starts on them.

A case is drawn from one seed, without I/O. It has nodes and pods as the API server takes them, and jobs as
users write them. Each decision after the first is made before the last has landed, or while it lands. The
flavors confine every case to nodes of its own, so that many cases share one cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import msgspec

from queuer.controller.cycle.snapshot import hosts_in_pin
from queuer.domain.assignments import Assignment
from queuer.domain.nodes import HOSTNAME, Flavor, Node, Taint, TaintEffect, Toleration, Topology
from queuer.domain.quantity import add, format_resources
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.workload import PodSet, Workload
from queuer.kube.kinds import JobKind
from queuer.kube.patches import AdmissionMark, admit_patch
from queuer.kube.template import Pin
from queuer.kube.workloads import NamespaceFacts, workload_of
from queuer.solver.decide import decide
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Snapshot, Unbound
from tests.e2e.landing_jobs import (
    AGE,
    CASE,
    DISK,
    GIB,
    GPU,
    POOL,
    RACK,
    TEAM,
    Jobs,
    Manifest,
    Pods,
    container,
)

BLOCK = "topology.kubernetes.io/block"
CYCLES = (30.0, 60.0, 90.0)
"""When the decisions of a case are made; the last is left out in half of the cases."""
_EVEN = {GPU: 8, "cpu": 64000, "memory": 256 * GIB, "pods": 110}
"""A host where all are alike."""

Rows = Sequence[tuple[Assignment, frozenset[str]]]
"""Assignments of a gang, each with the nodes on which kube-scheduler may put its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """An admitted gang: its pods as its job would make them, and where they may land; those that have landed name
    their node. `level`: key of the node label of which all its pods must see one value.
    """

    uid: str
    cycle: int
    hosts: frozenset[str]
    pods: tuple[Manifest, ...]
    level: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingCase:
    """A cluster, the pods that run there already, and what is started."""

    name: str
    nodes: tuple[Manifest, ...]
    foreign: tuple[Manifest, ...]
    launches: tuple[Launch, ...]

    def counts(self) -> Counter[str]:
        """The size of the case. `spread`: gangs with a choice of hosts; `shared`: hosts to which several may come."""
        made = [pod for launch in self.launches for pod in launch.pods]
        coming = Counter(host for launch in self.launches for host in launch.hosts)
        return Counter(
            cases=1,
            gangs=len(self.launches),
            pods=len(made),
            foreign=len(self.foreign),
            bound=sum("nodeName" in pod["spec"] for pod in made),
            spread=sum(len(launch.hosts) > 1 for launch in self.launches),
            shared=sum(times > 1 for times in coming.values()),
        )


def landing_case(seed: int, *, scheduler: str) -> LandingCase:
    """The case of a seed. Its gangs are for the scheduler of that name."""
    world = _World(seed, scheduler)
    snapshot = world.cluster()
    launches: list[Launch] = []
    for cycle, now in enumerate(CYCLES[: world.random.choice((2, 3))]):
        snapshot = world.land_some(snapshot)
        fresh = tuple(Pending(workload=_workload(*job)) for job in world.submit(cycle))
        snapshot = replace(snapshot, pending=(*snapshot.pending, *fresh))
        plan = decide(snapshot, now=now, seed=0, budget=Budget())
        waiting = {p.workload.uid: p for p in snapshot.pending}
        nodes = {state.node.name: state.node for state in snapshot.nodes}
        started = []
        for admission in plan.admissions:
            workload = waiting.pop(admission.uid).workload
            terms = {p.name: p.terms for p in workload.pod_sets}
            rows = [
                (row, frozenset(hosts_in_pin(row, terms[row.pod_set], nodes=nodes, flavors=snapshot.flavors)))
                for row in admission.assignments
            ]
            launches.append(world.launch(workload, rows, cycle=cycle))
            started.append(_unlanded(workload, rows, since=now))
        snapshot = replace(
            snapshot,
            admitted=(*snapshot.admitted, *started),
            pending=tuple(waiting.values()),
            bonds=plan.bonds,
        )
        if plan.evictions:
            snapshot = world.evict(snapshot, {eviction.uid for eviction in plan.evictions})
    return LandingCase(
        name=world.name,
        nodes=tuple(world.node_manifest(s.node) for s in snapshot.nodes),
        foreign=tuple(world.foreign),
        launches=tuple(launch for launch in launches if launch.uid not in world.evicted),
    )


def _workload(kind: JobKind, job: Manifest) -> Workload:
    return workload_of(
        kind,
        msgspec.convert(job, kind.type),
        facts=NamespaceFacts(schedulers=frozenset({"default-scheduler", "plain-scheduler"})),
    )


def _unlanded(workload: Workload, rows: Rows, *, since: float) -> Admitted:
    return Admitted(
        workload=workload,
        counts={row.pod_set: row.count for row, _ in rows},
        flavors={row.pod_set: row.flavor for row, _ in rows},
        since=since,
        unbound=tuple(
            Unbound(pod_set=row.pod_set, count=row.count, hosts=tuple(sorted(hosts))) for row, hosts in rows
        ),
    )


def _has_room(state: NodeState, asked: PodSet) -> bool:
    there, after = state.node.allocatable, add(state.used, asked.requests)
    return all(after[resource] <= there.get(resource, 0) for resource in asked.requests)


def _with_bound(gang: Admitted, asked: PodSet, host: str) -> Admitted:
    """The gang once a pod of this set is bound there."""
    loose = []
    for row in gang.unbound:
        if row.pod_set == asked.name:
            hosts = tuple(h for h in row.hosts if h != host or not asked.exclusive_host)
            row = replace(row, count=row.count - 1, hosts=hosts)
        loose.append(row)
    bound = {**gang.bound, host: add(gang.bound.get(host, {}), asked.requests)}
    return replace(gang, bound=bound, unbound=tuple(row for row in loose if row.count))


class _World:
    """The draws of one seed."""

    def __init__(self, seed: int, scheduler: str) -> None:
        self.name = f"{scheduler}-{seed}"
        self.random = Random(seed)
        self.jobs: dict[str, tuple[JobKind, Manifest]] = {}
        self.pods: dict[str, Pods] = {}
        self.foreign: list[Manifest] = []
        self.evicted: set[str] = set()
        self._pools = self.random.choice(((), ("a", "b")))
        self._large, even = self.random.random() < 0.1, self.random.random() < 0.25
        self._draw = Jobs(random=self.random, case=self.name, scheduler=scheduler, even=even)

    # The cluster

    def cluster(self) -> Snapshot:
        """Nodes with what foreign pods left free, and two queues."""
        size = self.random.randint(12, 24) if self._large else self.random.randint(3, 9)
        nodes = [self._node(i) for i in range(size)]
        return Snapshot(
            nodes=tuple(NodeState(node=node, used=self._fragment(node)) for node in nodes),
            tree=self._tree(),
            topology=Topology(keys=(BLOCK, RACK)),
            flavors=self._flavors(),
        )

    def _node(self, number: int) -> Node:
        draw, name = self.random, f"{self.name}-n{number}"
        labels = {HOSTNAME: name, CASE: self.name, BLOCK: f"b{number // 4}", RACK: f"r{number // 2}"}
        if draw.random() < 0.08:
            del labels[RACK]
        if draw.random() < 0.5:
            labels[DISK] = "ssd"
        if draw.random() < 0.8:
            labels[AGE] = str(number % 4)
        if self._pools:
            labels[POOL] = draw.choice(self._pools)
        amounts = {
            GPU: draw.choice((2, 4, 8)),
            "cpu": 1000 * draw.choice((8, 16, 32)),
            "memory": GIB * draw.choice((16, 64, 256)),
            "pods": draw.choice((4, 110, 110)),
        }
        taints = [Taint(key=POOL, value="b")] if labels.get(POOL) == "b" else []
        if draw.random() < 0.08:
            taints.append(Taint(key=TEAM, value="x", effect=draw.choice(tuple(TaintEffect))))
        return Node(
            name=name,
            labels=labels,
            allocatable=_EVEN if self._draw.even else amounts,
            taints=tuple(taints),
            unschedulable=draw.random() < 0.08,
        )

    def _flavors(self) -> tuple[Flavor, ...]:
        if not self._pools:
            return (Flavor(name="all", node_labels={CASE: self.name}),)
        tolerated = (Toleration(key=POOL, value="b", effect="NoSchedule"),)
        return tuple(
            Flavor(
                name=pool,
                node_labels={CASE: self.name, POOL: pool},
                tolerations=tolerated if pool == "b" else (),
            )
            for pool in self._pools
        )

    def _tree(self) -> QueueTree:
        rows: tuple[QuotaRow, ...] = ()
        if self.random.random() < 0.5:
            flavors = self._pools or (None,)
            rows = tuple(QuotaRow(resource=GPU, flavor=flavor, guaranteed=8) for flavor in flavors)
        leaves = (Queue(path="root.a", quota=rows), Queue(path="root.b"))
        return QueueTree.of([Queue(path="root"), *leaves])

    def _fragment(self, node: Node) -> dict[str, int]:
        """Bind foreign pods to a node at random; returns what they request."""
        draw, used = self.random, dict[str, int]()
        for number in range(draw.choice((0, 0, 0, 1) if self._draw.even else (0, 1, 2, 3, 5))):
            ask = {
                GPU: draw.choice((0, 1, 1, 2, 3)),
                "cpu": 500 * draw.randint(1, 8),
                "memory": GIB * draw.randint(1, 8),
            }
            after = add(used, {**ask, "pods": 1})
            if any(amount > node.allocatable[resource] for resource, amount in after.items()):
                continue
            used = after
            spec = {"nodeName": node.name, "containers": [container(ask)]}
            self.foreign.append(self._draw.pod(f"{node.name}-f{number}", {}, spec))
        return used

    def submit(self, cycle: int) -> list[tuple[JobKind, Manifest]]:
        """The jobs that come before a cycle."""
        count = self.random.randint(8, 16) if self._large else self.random.randint(3, 8)
        jobs = {uid: self._draw.job(uid) for uid in (f"g{cycle}-{i}" for i in range(count))}
        self.jobs |= jobs
        return list(jobs.values())

    # Consequences of an admission

    def launch(self, workload: Workload, rows: Rows, *, cycle: int) -> Launch:
        """The pods that the job makes once it is patched."""
        kind, job = self.jobs[workload.uid]
        flavors = {flavor.name: flavor for flavor in self._flavors()}
        pins = [
            Pin(
                pod_set=row.pod_set,
                count=row.count,
                selector=row.selector,
                hosts=row.hosts,
                tolerations=flavors[row.flavor].tolerations,
            )
            for row, _ in rows
        ]
        mark = AdmissionMark(id="1", epoch=1, cycle=cycle)
        patch = admit_patch(kind, msgspec.convert(job, kind.type), pins=pins, mark=mark)
        topology = Topology(keys=(BLOCK, RACK))
        level = topology.find(workload.required) if workload.required else None
        pods = self.pods[workload.uid] = self._draw.pods(workload.uid, kind, job, patch)
        return Launch(
            uid=workload.uid,
            cycle=cycle,
            hosts=frozenset().union(*(hosts for _, hosts in rows)),
            pods=tuple(pod for made in pods.values() for pod in made),
            level=None if level is None else topology.keys[level],
        )

    def land_some(self, snapshot: Snapshot) -> Snapshot:
        """In half of the cases some pods are bound."""
        left = sum(row.count for gang in snapshot.admitted for row in gang.unbound)
        if not left or self.random.random() < 0.5:
            return snapshot
        return self._land(snapshot, self.random.randint(1, left))

    def evict(self, snapshot: Snapshot, uids: set[str]) -> Snapshot:
        """The victims go once all pods have landed: no pin can know of room that comes in between."""
        snapshot = self._land(snapshot, sum(row.count for gang in snapshot.admitted for row in gang.unbound))
        nodes = {state.node.name: state for state in snapshot.nodes}
        for gang in (gang for gang in snapshot.admitted if gang.workload.uid in uids):
            for host, amounts in gang.bound.items():
                nodes[host] = replace(nodes[host], used=add(nodes[host].used, amounts, times=-1))
        self.evicted |= uids
        staying = tuple(gang for gang in snapshot.admitted if gang.workload.uid not in uids)
        return replace(snapshot, nodes=tuple(nodes.values()), admitted=staying)

    def _land(self, snapshot: Snapshot, count: int) -> Snapshot:
        """So many pods are bound, in any order, each to any node inside its pin that has room."""
        draw = self.random
        gangs = {gang.workload.uid: gang for gang in snapshot.admitted}
        left = [(uid, row.pod_set) for uid in gangs for row in gangs[uid].unbound for _ in range(row.count)]
        nodes = {state.node.name: state for state in snapshot.nodes}
        for uid, name in draw.sample(left, count):
            asked = next(p for p in gangs[uid].workload.pod_sets if p.name == name)
            pinned = next(row.hosts for row in gangs[uid].unbound if row.pod_set == name)
            if open_ := [host for host in pinned if _has_room(nodes[host], asked)]:
                host = draw.choice(open_)
                nodes[host] = replace(nodes[host], used=add(nodes[host].used, asked.requests))
                gangs[uid] = _with_bound(gangs[uid], asked, host)
                pod = next(pod for pod in self.pods[uid][name] if "nodeName" not in pod["spec"])
                pod["spec"]["nodeName"] = host
        return replace(snapshot, nodes=tuple(nodes.values()), admitted=tuple(gangs.values()))

    @staticmethod
    def node_manifest(node: Node) -> Manifest:
        """A node as the API server takes it."""
        amounts = format_resources(node.allocatable)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": dict(node.labels)},
            "spec": {
                "unschedulable": node.unschedulable,
                "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints],
            },
            "status": {"capacity": amounts, "allocatable": amounts},
        }

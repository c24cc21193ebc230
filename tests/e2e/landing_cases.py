"""Random fragmented small clusters with pods that are not ours, and what the decision starts on them.

A case is drawn from one seed, without I/O. It has nodes and pods as the API server takes them, and jobs as
users write them. The second of two decisions is made before the first has landed, or while it lands. The
flavors confine every case to nodes of its own, so that many cases share one cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec

from queuer.controller.cycle.snapshot import hosts_in_pin
from queuer.domain.assignments import Assignment
from queuer.domain.keys import MIN_COUNT, TOPOLOGY_PREFERRED, TOPOLOGY_REQUIRED
from queuer.domain.nodes import HOSTNAME, Flavor, Node, Taint, Toleration, Topology
from queuer.domain.quantity import add, format_resources
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.workload import PodSet, Workload
from queuer.kube.kinds import JOB, PYTORCHJOB, JobKind
from queuer.kube.patches import AdmissionMark, admit_patch
from queuer.kube.template import Pin
from queuer.kube.workloads import NamespaceFacts, workload_of
from queuer.solver.decide import decide
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Snapshot, Unbound
from tests.kube.merge_patch import merged

NAMESPACE = "landing-cases"
CASE, POOL, DISK = "queuer.test/case", "queuer.test/pool", "queuer.test/disk"
GANG, ROLE = "queuer.test/gang", "queuer.test/role"
GPU = "nvidia.com/gpu"
BLOCK, RACK = "topology.kubernetes.io/block", "topology.kubernetes.io/rack"
CYCLES = (30.0, 60.0)
"""When the decisions of a case are made."""
_GIB = 2**30
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LEVELS = (None, None, None, "host", "rack", "rack", "block")

Manifest = dict[str, Any]
Rows = Sequence[tuple[Assignment, frozenset[str]]]
"""Assignments of a gang, each with the nodes on which kube-scheduler may put its pods."""
Pods = Mapping[str, Sequence[Manifest]]
"""Pods of a gang by pod set."""


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


def landing_case(seed: int, *, scheduler: str) -> LandingCase:
    """The case of a seed. Its gangs are for the scheduler of that name."""
    world = _World(seed, scheduler)
    snapshot = world.cluster()
    launches: list[Launch] = []
    for cycle, now in enumerate(CYCLES):
        snapshot = world.land_some(snapshot)
        jobs = {uid: world.job(uid) for uid in (f"g{cycle}-{i}" for i in range(world.random.randint(3, 8)))}
        world.jobs |= jobs
        fresh = tuple(Pending(workload=_workload(kind, job)) for kind, job in jobs.values())
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
    return LandingCase(
        name=world.name,
        nodes=tuple(world.node_manifest(s.node) for s in snapshot.nodes),
        foreign=tuple(world.foreign),
        launches=tuple(launches),
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
        self._scheduler = scheduler
        self._pools = self.random.choice(((), ("a", "b")))

    # The cluster

    def cluster(self) -> Snapshot:
        """Nodes with what foreign pods left free, and two queues."""
        nodes = [self._node(i) for i in range(self.random.randint(3, 9))]
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
        if self._pools:
            labels[POOL] = draw.choice(self._pools)
        return Node(
            name=name,
            labels=labels,
            allocatable={
                GPU: draw.choice((2, 4, 8)),
                "cpu": 1000 * draw.choice((8, 16, 32)),
                "memory": _GIB * draw.choice((16, 64, 256)),
                "pods": draw.choice((4, 110, 110)),
            },
            taints=(Taint(key=POOL, value="b"),) if labels.get(POOL) == "b" else (),
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
        if self._pools and self.random.random() < 0.5:
            rows = tuple(QuotaRow(resource=GPU, flavor=pool, guaranteed=4) for pool in self._pools)
        leaves = (Queue(path="root.a", quota=rows), Queue(path="root.b"))
        return QueueTree.of([Queue(path="root"), *leaves])

    def _fragment(self, node: Node) -> dict[str, int]:
        """Bind foreign pods to a node at random; returns what they request."""
        draw, used = self.random, dict[str, int]()
        for number in range(draw.choice((0, 1, 2, 3, 5))):
            ask = {
                GPU: draw.choice((0, 1, 1, 2, 3)),
                "cpu": 500 * draw.randint(1, 8),
                "memory": _GIB * draw.randint(1, 8),
            }
            after = add(used, {**ask, "pods": 1})
            if any(amount > node.allocatable[resource] for resource, amount in after.items()):
                continue
            used = after
            spec = {"nodeName": node.name, "containers": [_container(ask)]}
            self.foreign.append(self._pod(f"{node.name}-f{number}", {}, spec))
        return used

    # Jobs

    def job(self, uid: str) -> tuple[JobKind, Manifest]:
        """A Job of one pod set, or a PyTorchJob of a master and workers, half of these with one template for both."""
        draw = self.random
        count, notes = draw.randint(1, 6), {}
        level = draw.choice(_LEVELS)
        if level is not None:
            notes[draw.choice((TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED))] = level
        kind = draw.choice((JOB, JOB, PYTORCHJOB))
        if draw.random() < 0.2:
            notes[f"{MIN_COUNT}{'main' if kind is JOB else 'worker'}"] = str(draw.randint(1, count))
        spec: Manifest
        if kind is JOB:
            template = self._template(uid, "main")
            spec = {"suspend": True, "parallelism": count, "completions": count, "template": template}
        else:
            roles, same, before = dict[str, Manifest](), draw.random() < 0.5, draw.getstate()
            for role, size in (("Master", 1), ("Worker", count)):
                if same:
                    draw.setstate(before)
                roles[role] = {"replicas": size, "template": self._template(uid, role.lower())}
            spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": roles}
        labels = {"queuer.dev/queue": draw.choice(("root.a", "root.b"))}
        meta = {"name": uid, "uid": uid, "namespace": NAMESPACE, "labels": labels, "annotations": notes}
        return kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": spec}

    def _template(self, uid: str, role: str) -> Manifest:
        draw = self.random
        ask = {
            GPU: draw.choice((0, 1, 1, 2, 2, 4)),
            "cpu": 500 * draw.randint(1, 8),
            "memory": _GIB * draw.choice((1, 2, 4, 12)),
        }
        spec: Manifest = {"containers": [_container(ask)], "schedulerName": self._scheduler}
        if draw.random() < 0.15:
            spec["nodeSelector"] = {DISK: "ssd"}
        if draw.random() < 0.15:
            row = {"key": RACK, "operator": draw.choice(("In", "NotIn")), "values": ["r0", "r3"]}
            terms = [{"matchExpressions": [row]}, {"matchExpressions": [{"key": DISK, "operator": "Exists"}]}]
            required = {"nodeSelectorTerms": terms[: draw.randint(1, 2)]}
            spec["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
        labels = {GANG: f"{self.name}-{uid}", ROLE: role}
        if draw.random() < 0.15:
            apart = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
            spec.setdefault("affinity", {})["podAntiAffinity"] = {_REQUIRED: [apart]}
        return {"metadata": {"labels": labels}, "spec": spec}

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
        patched = merged(job, admit_patch(kind, msgspec.convert(job, kind.type), pins=pins, mark=mark))
        topology = Topology(keys=(BLOCK, RACK))
        level = topology.find(workload.required) if workload.required else None
        pods = self.pods[workload.uid] = self._pods(workload.uid, patched)
        return Launch(
            uid=workload.uid,
            cycle=cycle,
            hosts=frozenset().union(*(hosts for _, hosts in rows)),
            pods=tuple(pod for made in pods.values() for pod in made),
            level=None if level is None else topology.keys[level],
        )

    def land_some(self, snapshot: Snapshot) -> Snapshot:
        """In half of the cases some pods are bound, in any order, each to any node inside its pin that has room."""
        draw = self.random
        gangs = {gang.workload.uid: gang for gang in snapshot.admitted}
        left = [
            (uid, row.pod_set, n) for uid in gangs for row in gangs[uid].unbound for n in range(row.count)
        ]
        if not left or draw.random() < 0.5:
            return snapshot
        nodes = {state.node.name: state for state in snapshot.nodes}
        for uid, name, number in draw.sample(left, draw.randint(1, len(left))):
            asked = next(p for p in gangs[uid].workload.pod_sets if p.name == name)
            pinned = next(row.hosts for row in gangs[uid].unbound if row.pod_set == name)
            if open_ := [host for host in pinned if _has_room(nodes[host], asked)]:
                host = draw.choice(open_)
                nodes[host] = replace(nodes[host], used=add(nodes[host].used, asked.requests))
                gangs[uid] = _with_bound(gangs[uid], asked, host)
                self.pods[uid][name][number]["spec"]["nodeName"] = host
        return replace(snapshot, nodes=tuple(nodes.values()), admitted=tuple(gangs.values()))

    def _pods(self, uid: str, job: Manifest) -> dict[str, list[Manifest]]:
        spec = job["spec"]
        if "pytorchReplicaSpecs" in spec:
            sets = [(r, s["replicas"], s["template"]) for r, s in spec["pytorchReplicaSpecs"].items()]
        else:
            sets = [("main", spec["parallelism"], spec["template"])]
        return {
            role.lower(): [
                self._pod(
                    f"{self.name}-{uid}-{role.lower()}-{i}", template["metadata"]["labels"], template["spec"]
                )
                for i in range(count)
            ]
            for role, count, template in sets
        }

    def _pod(self, name: str, labels: Mapping[str, str], spec: Manifest) -> Manifest:
        meta = {"name": name, "namespace": NAMESPACE, "labels": {**labels, CASE: self.name}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": deepcopy(spec)}

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


def _container(ask: Mapping[str, int]) -> Manifest:
    amounts = format_resources({resource: amount for resource, amount in ask.items() if amount})
    return {"name": "main", "image": "training:1", "resources": {"requests": amounts, "limits": amounts}}

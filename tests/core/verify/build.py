"""Snapshots and plans written by hand, to be broken: what the tests of the verifier share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from queuer.core.records import (
    Admission,
    Admitted,
    Assignment,
    Bond,
    CycleStats,
    Eviction,
    EvictionRule,
    NodeState,
    Pending,
    Plan,
    Snapshot,
    SolveStatus,
)
from queuer.core.verify import Rule, verify
from queuer.domain.nodes import Node, Topology
from queuer.domain.quantity import add
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import PodSet, Workload

GPU = "example.com/gpu"
NOW = 1000.0
STATS = CycleStats(status=SolveStatus.GREEDY)
TOPOLOGY = Topology(keys=("block", "rack"))


def node(name: str, *, gpu: int = 8, **more: Any) -> Node:
    return Node(name=name, **{"labels": {}, "allocatable": {GPU: gpu, "pods": 20}, **more})


RACKS = [node(f"n{i}", labels={"block": "b", "rack": f"r{(i + 1) // 2}"}) for i in (1, 2, 3, 4)]
"""n1 and n2 in one rack, n3 and n4 in another."""


def pods(count: int, gpu: int, *, name: str = "main", **more: Any) -> PodSet:
    return PodSet(name=name, count=count, requests={GPU: gpu, "pods": 1}, **more)


def gang(uid: str, *sets: PodSet, queue: str = "root.a", submitted: float = 0.0, **more: Any) -> Workload:
    return Workload(
        uid=uid,
        kind="Job",
        namespace="test",
        name=uid,
        queue=queue,
        pod_sets=sets,
        submitted=submitted,
        **more,
    )


def running(workload: Workload, at: Mapping[str, int], **more: Any) -> Admitted:
    """Of one pod set with so many pods bound on each node."""
    (only,) = workload.pod_sets
    bound = {name: add({}, only.requests, times=count) for name, count in at.items()}
    known: dict[str, Any] = {"counts": {only.name: only.count}, "since": 0.0, "bound": bound}
    return Admitted(workload=workload, flavors={only.name: "default"}, **{**known, **more})


def snapshot(
    nodes: Iterable[Node] = RACKS,
    *,
    queues: Iterable[Queue] = (),
    admitted: Iterable[Admitted] = (),
    pending: Iterable[Workload | Pending] = (),
    foreign: Mapping[str, Mapping[str, int]] | None = None,
    **more: Any,
) -> Snapshot:
    """With the root and `root.a` where they are not given. `foreign`: what other pods take, by node."""
    used: dict[str, Mapping[str, int]] = dict(foreign or {})
    there = {"root": Queue(path="root"), "root.a": Queue(path="root.a"), **{q.path: q for q in queues}}
    held = tuple(admitted)
    for gang in held:
        for name, amounts in gang.bound.items():
            used[name] = add(used.get(name, {}), amounts)
    return Snapshot(
        nodes=tuple(NodeState(node=n, used=used.get(n.name, {})) for n in nodes),
        tree=QueueTree.of(there.values()),
        admitted=held,
        pending=tuple(p if isinstance(p, Pending) else Pending(workload=p) for p in pending),
        **{"topology": TOPOLOGY, **more},
    )


def queue(path: str, *, flavor: str | None = None, policy: Any = None, **amounts: int) -> Queue:
    """With a row of GPUs."""
    rows = (QuotaRow(resource=GPU, flavor=flavor, **amounts),) if amounts else ()
    return Queue(path=path, quota=rows, **({"policy": policy} if policy else {}))


def at(nodes: Mapping[str, int], *, pod_set: str = "main", flavor: str = "default", **more: Any) -> Assignment:
    """Pinned to its hosts."""
    return Assignment(
        pod_set=pod_set, flavor=flavor, nodes=nodes, **{"hosts": tuple(sorted(nodes)), **more}
    )


def bond(uid: str, *rows: Assignment, victims: tuple[str, ...] = (), deadline: float = NOW + 300) -> Bond:
    return Bond(uid=uid, assignments=rows, victims=victims, deadline=deadline)


def evicts(beneficiary: str, victim: str, rule: EvictionRule = EvictionRule.PREEMPT) -> Eviction:
    return Eviction(uid=victim, beneficiary=beneficiary, rule=rule)


def waits(token: Token = Token.WAITING_FOR_QUOTA) -> Explanation:
    return simple(token, "It waits.")


def plan(snap: Snapshot, starts: Mapping[str, Iterable[Assignment]], **more: Any) -> Plan:
    """With a reason for everyone who waits; turns in the snapshot's order."""
    uids = tuple(p.workload.uid for p in snap.pending)
    held = {b.uid for b in more.get("bonds", ())}
    tokens = {u: Token.WAITING_FOR_PREEMPTED_WORKLOADS if u in held else Token.WAITING_FOR_QUOTA for u in uids}
    made = Plan(
        admissions=tuple(Admission(uid=uid, assignments=tuple(rows)) for uid, rows in starts.items()),
        evictions=(),
        bonds=(),
        reservations=(),
        explanations={uid: waits(token) for uid, token in tokens.items() if uid not in starts},
        order=uids,
        stats=STATS,
    )
    return replace(made, **more)


def broken(snap: Snapshot, made: Plan) -> set[tuple[Rule, str]]:
    """Rules that are broken, with the gang to take out."""
    return {(violation.rule, violation.uid) for violation in verify(snap, made, now=NOW)}


"""Plans written by hand, to be broken: what the tests of the verifier share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from queuer.domain.assignments import Admission, Assignment, Bond, Eviction, EvictionRule
from queuer.domain.nodes import Node
from queuer.domain.queue import Queue
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import Workload
from queuer.solver.records import Pending, Plan, Snapshot
from queuer.solver.verify import Rule, verify
from tests.solver.make import node, plan_of, queue, snapshot

NOW = 0.0
RACKS = [node(f"n{i}", labels={"block": "b", "rack": f"r{(i + 1) // 2}"}) for i in (1, 2, 3, 4)]
"""n1 and n2 in one rack, n3 and n4 in another."""


def world(
    *pending: Workload | Pending, nodes: Iterable[Node] = RACKS, queues: Iterable[Queue] = (), **more: Any
) -> Snapshot:
    """These wait, by default for the racks, in `root.a`."""
    known = {q.path: q for q in (queue("root.a"), *queues)}
    return snapshot(nodes, known.values(), pending=pending, **more)


def at(
    nodes: Mapping[str, int], *, pod_set: str = "main", flavor: str = "default", **more: Any
) -> Assignment:
    """Pinned to its hosts."""
    pin = {"hosts": tuple(sorted(nodes)), **more}
    return Assignment(pod_set=pod_set, flavor=flavor, nodes=nodes, **pin)


def bond(uid: str, *rows: Assignment, victims: tuple[str, ...] = (), deadline: float = NOW + 300) -> Bond:
    return Bond(uid=uid, assignments=rows, victims=victims, deadline=deadline)


def evicts(beneficiary: str, victim: str, rule: EvictionRule = EvictionRule.PREEMPT) -> Eviction:
    return Eviction(uid=victim, beneficiary=beneficiary, rule=rule)


def waits(token: Token = Token.WAITING_FOR_QUOTA) -> Explanation:
    return simple(token, "It waits.")


def plan(snap: Snapshot, starts: Mapping[str, Iterable[Assignment]], **more: Any) -> Plan:
    """With a reason for everyone who waits, turns in the snapshot's order."""
    held = {b.uid: waits(Token.WAITING_FOR_PREEMPTED_WORKLOADS) for b in more.get("bonds", ())}
    uids = tuple(p.workload.uid for p in snap.pending)
    made = plan_of(
        admissions=tuple(Admission(uid=uid, assignments=tuple(rows)) for uid, rows in starts.items()),
        explanations={uid: held.get(uid, waits()) for uid in uids if uid not in starts},
        order=uids,
    )
    return replace(made, **more)


def broken(snap: Snapshot, made: Plan) -> set[tuple[Rule, str]]:
    """Rules that are broken, with the gang to take out."""
    return {(violation.rule, violation.uid) for violation in verify(snap, made, now=NOW)}

"""What another configuration would change: the decision on what the last cycle left, under the one and the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from queuer.domain.nodes import Flavor, Topology
from queuer.domain.queue import QueueTree
from queuer.domain.reasons import Verdict
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.explain.advice import left_by
from queuer.solver.records import Budget, Plan, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A configuration as a decision takes it."""

    tree: QueueTree
    flavors: tuple[Flavor, ...]
    topology: Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`starts`: waiting workloads that would start now, and would not as it is; `never`: those that could not start any
    more whatever ends, and can as it is. In the order of their turns.
    """

    starts: tuple[Workload, ...]
    never: tuple[Workload, ...]


def difference(
    snapshot: Snapshot, plan: Plan, *, now: float, seed: int, budget: Budget, before: Rules, after: Rules
) -> Difference:
    """What `after` changes for those who wait once this plan is carried out. Raises UnsoundPlan, InvalidInput."""
    left = left_by(snapshot, plan, now=now)
    known = {p.workload.uid: p.workload for p in left.pending}
    under = [_under(left, rules) for rules in (before, after)]
    arrays = Arrays.of(under[0])
    plans = [decide(under[0], now=now, seed=seed, budget=budget, arrays=arrays)]
    plans.append(decide(under[1], now=now, seed=seed, budget=budget, arrays=arrays.follow(under[1])))
    starts = [frozenset(admission.uid for admission in made.admissions) for made in plans]
    never = [
        frozenset(uid for uid, told in made.explanations.items() if told.verdict is Verdict.CHANGE)
        for made in plans
    ]
    order = plans[1].order
    return Difference(
        starts=_those(order, starts[1] - starts[0], known), never=_those(order, never[1] - never[0], known)
    )


def _those(
    order: tuple[str, ...], uids: frozenset[str], known: Mapping[str, Workload]
) -> tuple[Workload, ...]:
    return tuple(known[uid] for uid in order if uid in uids)


def _under(snapshot: Snapshot, rules: Rules) -> Snapshot:
    """The same cluster under these rules. Jobs whose queue is none of theirs are not offered."""
    tree = rules.tree
    pending = [p for p in snapshot.pending if p.workload.queue in tree and tree.is_leaf(p.workload.queue)]
    admitted = [a for a in snapshot.admitted if a.workload.queue in tree]
    there = {row.workload.uid for row in pending} | {row.workload.uid for row in admitted}
    return replace(
        snapshot,
        tree=tree,
        flavors=rules.flavors,
        topology=rules.topology,
        pending=tuple(pending),
        admitted=tuple(admitted),
        bonds=tuple(bond for bond in snapshot.bonds if bond.uid in there),
        reservations=tuple(row for row in snapshot.reservations if row.uid in there),
    )

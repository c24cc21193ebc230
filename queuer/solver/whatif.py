"""What another configuration would change: the decision on what the last cycle left, under the one and the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from queuer.domain.queue import QueueState, QueueTree
from queuer.domain.reasons import Verdict
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload
from queuer.solver.decide import decide
from queuer.solver.explain.advice import WITHOUT_SOLVER, left_by
from queuer.solver.offered import offered
from queuer.solver.outlook import Outlook
from queuer.solver.records import Pending, Plan, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is so then, and is not as it is. `starts`: waiting workloads that would start now, or once those of
    `evicted` have left; `never`: those that could not start any more, whatever ends. In the order of their turns.
    """

    starts: tuple[Workload, ...]
    evicted: tuple[Workload, ...]
    never: tuple[Workload, ...]


def difference(
    snapshot: Snapshot,
    plan: Plan,
    *,
    now: float,
    seed: int,
    before: Rules,
    after: Rules,
    refused: Callable[[Workload, Rules], bool] = lambda workload, rules: False,
) -> Difference:
    """What `after` changes for those who wait once this plan is carried out. `refused`: whether a queue would take a
    workload no more, so that no decision were asked. Raises UnsoundPlan, InvalidInput.

    CP-SAT is not asked: what a repair could start besides is not told.
    """
    left = left_by(snapshot, plan, now=now)

    def decided(rules: Rules, *, made: Plan | None = None) -> Plan:
        """Those who are not offered count as told by the plan. `made`: the plan, where it is known."""
        asked, beyond = offered(under(left, rules), plan)
        made = made or decide(asked, now=now, seed=seed, budget=WITHOUT_SOLVER)
        return replace(made, explanations={**made.explanations, **beyond}, order=(*made.order, *beyond))

    # A plan leaves nobody who could start under its own rules, unless it had not the time to look at all.
    settled = before.same_as(snapshot.rules) and not plan.stats.more
    as_is = decided(before, made=replace(plan, admissions=()) if settled else None)
    would_be = decided(after)
    known = {p.workload.uid: p.workload for p in (*left.pending, *left.barred)}
    leave = _evicted(would_be) - _evicted(as_is)

    def never(rules: Rules, made: Plan) -> frozenset[str]:
        """Whoever they wait for, and whatever state their queue is in."""
        outlook = Outlook(
            (state.node for state in left.nodes),
            tree=QueueTree.of(replace(queue, state=QueueState.OPEN) for queue in rules.tree),
            topology=rules.topology, flavors=rules.flavors,
        )  # fmt: skip
        found = (uid for uid, own in known.items() if refused(own, rules) or outlook.never(own) is not None)
        return _never(made) | frozenset(found)

    return Difference(
        starts=_those(would_be.order, _started(would_be) - _started(as_is), known),
        evicted=tuple(a.workload for a in left.admitted if a.workload.uid in leave),
        never=_those(
            tuple(dict.fromkeys((*would_be.order, *known))),
            never(after, would_be) - never(before, as_is),
            known,
        ),
    )


def _started(plan: Plan) -> frozenset[str]:
    return frozenset(made.uid for made in plan.admissions) | frozenset(bond.uid for bond in plan.bonds)


def _evicted(plan: Plan) -> frozenset[str]:
    return frozenset(eviction.uid for eviction in plan.evictions)


def _never(plan: Plan) -> frozenset[str]:
    return frozenset(uid for uid, told in plan.explanations.items() if told.verdict is Verdict.CHANGE)


def _those(
    order: tuple[str, ...], uids: frozenset[str], known: Mapping[str, Workload]
) -> tuple[Workload, ...]:
    return tuple(known[uid] for uid in order if uid in uids)


def under(snapshot: Snapshot, rules: Rules) -> Snapshot:
    """The same cluster under these rules. Jobs whose queue is none of theirs are not offered."""
    tree = rules.tree

    def served(rows: tuple[Pending, ...]) -> tuple[Pending, ...]:
        return tuple(p for p in rows if p.workload.queue in tree and tree.is_leaf(p.workload.queue))

    pending = served(snapshot.pending)
    admitted = [a for a in snapshot.admitted if a.workload.queue in tree]
    there = {row.workload.uid for row in pending} | {row.workload.uid for row in admitted}
    return replace(
        snapshot,
        tree=tree,
        flavors=rules.flavors,
        topology=rules.topology,
        pending=pending,
        barred=served(snapshot.barred),
        admitted=tuple(admitted),
        bonds=tuple(bond for bond in snapshot.bonds if bond.uid in there),
        reservations=tuple(row for row in snapshot.reservations if row.uid in there),
    )

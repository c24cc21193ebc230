"""Two questions to the decision, on the world that a stored cycle left: one more gang, or another configuration.

Nothing is written, and nothing is held for an answer: the next cycle may find things changed. CP-SAT is not asked, so
an answer leaves out what a repair could start besides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from queuer.domain.assignments import Assignment
from queuer.domain.quantity import Resources, add
from queuer.domain.reasons import Explanation, Verdict
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload
from queuer.solver.after_cycle import AfterCycle, within_user_limits
from queuer.solver.explain.unstartable import Outlook
from queuer.solver.job_detail import explain
from queuer.solver.records import Pending, Plan, Snapshot

UID = "simulated"
"""Of the gang that is asked about; no job's uid is like it."""


# One more gang


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The gangs that would be evicted in one queue, and their amounts together."""

    queue: str
    gangs: int
    amounts: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """`places`: where it would start, at once or when those of `leaving` are gone; empty = it waits, for a reason.

    `unseen`: kinds of objects in the job's namespace that nobody looked at, and that may stand against it.
    """

    places: tuple[Assignment, ...] = ()
    leaving: tuple[Leaving, ...] = ()
    explanation: Explanation | None = None
    unseen: tuple[str, ...] = ()


def simulate(after: AfterCycle, workload: Workload, rules: Rules | None = None) -> Simulated:
    """The fate of one more job on the world that a cycle leaves. `rules`: None = those of the cycle.

    Raises InvalidInput, UnsoundPlan.
    """
    snapshot = after.snapshot
    if rules is not None and not rules.same_as(snapshot.rules):
        snapshot = under(snapshot, rules)
    asked = replace(workload, uid=UID, submitted=after.now)
    snapshot = replace(snapshot, pending=(*snapshot.pending, Pending(workload=asked)))
    snapshot, over_limit = within_user_limits(snapshot, after.plan)
    if UID in over_limit:
        return Simulated(explanation=over_limit[UID])
    plan = after.decide(after.arrays.follow(snapshot))
    admitted = next((a for a in plan.admissions if a.uid == UID), None)
    if admitted is not None:
        return Simulated(places=admitted.assignments)
    bond = next((b for b in plan.bonds if b.uid == UID), None)
    if bond is not None:
        return Simulated(places=bond.assignments, leaving=_leaving(snapshot, plan))
    then = AfterCycle(snapshot, plan, now=after.now, seed=after.seed)
    return Simulated(explanation=explain(then, UID))


def _leaving(snapshot: Snapshot, plan: Plan) -> tuple[Leaving, ...]:
    gone = {e.uid for e in plan.evictions if e.beneficiary == UID}
    gangs, amounts = Counter[str](), dict[str, Mapping[str, int]]()
    for run in snapshot.admitted:
        workload = run.workload
        if workload.uid in gone:
            gangs[workload.queue] += 1
            sets = {p.name: p.requests for p in workload.pod_sets}
            for name, count in run.counts.items():
                amounts[workload.queue] = add(amounts.get(workload.queue, {}), sets[name], times=count)
    return tuple(Leaving(queue=q, gangs=n, amounts=amounts[q]) for q, n in sorted(gangs.items()))


# Another configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The effect of other rules. `starts`: waiting workloads that would start now, or once those of `evicted` have
    left. `unstartable`: workloads that could not start any more, whatever ends. In the order of their turns.
    `unstartable_running`: running workloads that could not start again once they have left.
    """

    starts: tuple[Workload, ...]
    evicted: tuple[Workload, ...]
    unstartable: tuple[Workload, ...]
    unstartable_running: tuple[Workload, ...]


def difference(
    after: AfterCycle,
    *,
    before: Rules,
    then: Rules,
    refused: Callable[[Workload, Rules], bool] = lambda workload, rules: False,
) -> Difference:
    """The effect of the rules `then` on the workloads that wait after a cycle. Raises UnsoundPlan, InvalidInput.

    `refused`: whether a queue would take a workload no more, so that no decision were asked.
    """
    left, plan = after.snapshot, after.plan

    def decided(rules: Rules, *, made: Plan | None = None) -> Plan:
        """Workloads that are not asked about keep their last explanation. `made`: the plan, where it is known."""
        asked, over_limit = within_user_limits(under(left, rules), plan)
        made = made or after.decide(after.arrays.follow(asked))
        return replace(
            made, explanations={**made.explanations, **over_limit}, order=(*made.order, *over_limit)
        )

    # A plan leaves nobody who could start under its own rules, unless it had not the time to look at all.
    settled = before.same_as(left.rules) and not plan.stats.more
    as_is = decided(before, made=replace(plan, admissions=()) if settled else None)
    would_be = decided(then)
    known = {p.workload.uid: p.workload for p in (*left.pending, *left.over_limit)}
    runs = {a.workload.uid: a.workload for a in left.admitted}
    leave = _evicted(would_be) - _evicted(as_is)

    def unstartable(rules: Rules, made: Plan) -> frozenset[str]:
        """Workloads that could never start, in whatever state their queue is; running ones too, once they have left."""
        outlook = Outlook((state.node for state in left.nodes), rules)
        found = (
            uid
            for uid, own in {**known, **runs}.items()
            if refused(own, rules) or outlook.unstartable(own) is not None
        )
        return _unstartable(made) | frozenset(found)

    hopeless = unstartable(then, would_be) - unstartable(before, as_is)
    return Difference(
        starts=_those(would_be.order, _started(would_be) - _started(as_is), known),
        evicted=tuple(a.workload for a in left.admitted if a.workload.uid in leave),
        unstartable=_those(tuple(dict.fromkeys((*would_be.order, *known))), hopeless & known.keys(), known),
        unstartable_running=_those(tuple(runs), hopeless & runs.keys(), runs),
    )


def _started(plan: Plan) -> frozenset[str]:
    return frozenset(made.uid for made in plan.admissions) | frozenset(bond.uid for bond in plan.bonds)


def _evicted(plan: Plan) -> frozenset[str]:
    return frozenset(eviction.uid for eviction in plan.evictions)


def _unstartable(plan: Plan) -> frozenset[str]:
    return frozenset(uid for uid, told in plan.explanations.items() if told.verdict is Verdict.CHANGE)


def _those(
    order: tuple[str, ...], uids: frozenset[str], known: Mapping[str, Workload]
) -> tuple[Workload, ...]:
    return tuple(known[uid] for uid in order if uid in uids)


def under(snapshot: Snapshot, rules: Rules) -> Snapshot:
    """The same cluster under these rules, without the jobs of queues that they do not have."""
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
        over_limit=served(snapshot.over_limit),
        admitted=tuple(admitted),
        bonds=tuple(bond for bond in snapshot.bonds if bond.uid in there),
        reservations=tuple(row for row in snapshot.reservations if row.uid in there),
    )

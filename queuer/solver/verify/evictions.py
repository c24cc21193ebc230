"""The verifier's look at evictions: a bond that has the place, victims that may be evicted (DESIGN 3.3)."""

from __future__ import annotations

from collections.abc import Iterator

from queuer.domain.queue import Preempt
from queuer.solver.records import Admitted, EvictionRule
from queuer.solver.verify.case import Case, Rule, Violation, part_of
from queuer.solver.verify.quota import Use, asks_of


def check_bonds(case: Case) -> Iterator[Violation]:
    """Each eviction is for a bond that lists its victim; a bond has time left, and a new one somebody who leaves."""
    bonds = {bond.uid: bond for bond in case.plan.bonds if bond.uid in case.bound}
    for eviction in case.plan.evictions:
        uid = eviction.beneficiary
        if uid not in bonds or eviction.uid not in bonds[uid].victims:
            yield Violation(Rule.BOND, uid, f"no bond gives it a place for which {eviction.uid} goes")
    for uid, bond in bonds.items():
        if not bond.deadline > case.now:
            yield Violation(Rule.BOND, uid, "its bond has passed its deadline")
        if uid in case.new and case.gone.isdisjoint(bond.victims):
            yield Violation(Rule.BOND, uid, "it is bound, though nobody leaves")


def check_victims(case: Case) -> Iterator[Violation]:
    """Each victim may be evicted at all, and by the rule that is named for its beneficiary. They go in the plan's
    order, when all that leaves already has left.
    """
    evictions = [e for e in case.plan.evictions if e.beneficiary in case.bound]
    leaving = (part_of(case.running[uid]) for uid in case.releasing if evictions)
    use = (
        Use(case.book, case.use).count(leaving, times=-1).count(case.parts(case.started if evictions else ()))
    )
    for eviction in evictions:
        victim, uid = case.running[eviction.uid], eviction.beneficiary
        if problem := _untouchable(case, uid, victim) or _not_permitted(
            case, uid, victim, eviction.rule, use
        ):
            yield Violation(Rule.VICTIM, uid, f"it evicts {eviction.uid}, which {problem}")
        if not victim.releasing:
            use.count([part_of(victim)], times=-1)


def _untouchable(case: Case, uid: str, victim: Admitted) -> str:
    rest = case.snapshot.tree.policy(case.book.path(victim.workload.queue)[0]).min_runtime or 0.0
    if not victim.workload.preemptible or victim.releasing:
        return "is leaving already" if victim.releasing else "is not preemptible"
    if case.now - victim.since < rest:
        return f"has run {case.now - victim.since:.0f} s of its queue's minRuntime {rest:.0f} s"
    return "displaced it before" if victim.workload.uid in case.pending[uid].displaced_by else ""


def _not_permitted(case: Case, uid: str, admitted: Admitted, rule: EvictionRule, use: Use) -> str:
    """`use`: as the victim goes."""
    gang, victim, asks = case.workload(uid), admitted.workload, case.asks(uid)
    book, policy = case.book, case.snapshot.tree.policy
    path, above = book.path(victim.queue), book.path(gang.queue)
    common = next(queue for queue in above if queue in path)
    below = path[: path.index(common)]
    if rule is EvictionRule.RECLAIM:
        if not below:
            return f"is of {common} as well, and reclaim is between queues"
        if not policy(above[0]).reclaim:
            return f"is of {path[0]}, and reclaim is off for {above[0]}"
        toward = above[above.index(common) - 1]
        if toward not in case.entitled[uid]:
            return f"is of {path[0]}, and it is not entitled at {toward}"
        keys = book.claims(gang.queue, asks)
    else:
        if not victim.priority < gang.priority:
            return f"has priority {victim.priority}, not below {gang.priority}"
        said = policy(common).preempt
        if said is Preempt.NEVER or (gang.queue != victim.queue and said is not Preempt.LOWER_PRIORITY):
            return f"is protected as {common} says preempt: {said}"
        keys = book.claims(path[0], asks)
        if gang.queue == victim.queue or not keys:
            return ""
    own = asks_of(part_of(admitted))
    if any(own.get(key) and all(use.used(q, key) > book.guaranteed(q, key) for q in below) for key in keys):
        return ""
    return f"is of {path[0]}, which would not be above its guarantee when it goes"

"""The verifier's look at evictions: a bond that has the place, victims that may be evicted."""

from __future__ import annotations

from collections.abc import Iterator

from queuer.domain.assignments import EvictionRule
from queuer.domain.queue import Preempt
from queuer.solver.records import Admitted
from queuer.solver.verify.case import Rule, VerifierCase, Violation, part_of
from queuer.solver.verify.quota import Use, asks_of

SPARED = 2
"""Evictions in the last hour after which nobody is preempted."""


def check_bonds(case: VerifierCase) -> Iterator[Violation]:
    """Each eviction is for a bond that lists its victim. A new bond has a victim that leaves. A standing bond ends at
    its deadline, or when its victims are known to have gone.
    """
    bonds = {bond.uid: bond for bond in case.plan.bonds if bond.uid in case.bound}
    for eviction in case.plan.evictions:
        uid = eviction.beneficiary
        if uid not in bonds or eviction.uid not in bonds[uid].victims:
            yield Violation(Rule.BOND, uid, f"no bond gives it a place for which {eviction.uid} goes")
    ends = {bond.uid: (bond.assignments, case.until(bond)) for bond in case.snapshot.bonds}
    evicting = {eviction.beneficiary for eviction in case.plan.evictions}
    for uid, bond in bonds.items():
        rows, end = ends.get(uid, ((), 0.0))
        if not bond.deadline > case.now:
            yield Violation(Rule.BOND, uid, "its bond has passed its deadline")
        if rows == bond.assignments and uid not in evicting and bond.deadline > end:
            yield Violation(Rule.BOND, uid, "its bond is to last longer than those take that it waits for")
        if uid in case.new and case.gone.isdisjoint(bond.victims):
            yield Violation(Rule.BOND, uid, "it is bound, though nobody leaves")


def check_victims(case: VerifierCase) -> Iterator[Violation]:
    """Each victim may be evicted, by the rule that is named. They go in the plan's order, when all that leaves already
    has left.
    """
    evictions = [e for e in case.plan.evictions if e.beneficiary in case.bound]
    if not evictions:
        return
    use = Use(case.book, case.use).count(case.parts(case.started))
    use.count((part_of(case.running[uid]) for uid in case.releasing), times=-1)
    for eviction in evictions:
        victim, uid = case.running[eviction.uid], eviction.beneficiary
        if not (_may_go(case, uid, victim) and _permits(case, uid, victim, eviction.rule, use)):
            yield Violation(Rule.VICTIM, uid, f"it may not evict {eviction.uid} by {eviction.rule}")
        if not victim.releasing:
            use.count([part_of(victim)], times=-1)


def _may_go(case: VerifierCase, uid: str, victim: Admitted) -> bool:
    """Whether it is preemptible, not leaving, past its minRuntime, and did not displace this gang itself. Starts of the
    gang do not fail again and again.
    """
    rest = case.snapshot.tree.policy(case.book.path(victim.workload.queue)[0]).min_runtime or 0.0
    there = victim.workload.preemptible and not victim.releasing and case.now - victim.since >= rest
    gang = case.pending[uid]
    return there and not gang.failed and victim.workload.uid not in gang.displaced_by


def _permits(case: VerifierCase, uid: str, victim: Admitted, rule: EvictionRule, use: Use) -> bool:
    """Whether the rule holds. `use`: as the victim goes."""
    gang, book, policy = case.workload(uid), case.book, case.snapshot.tree.policy
    path, above = book.path(victim.workload.queue), book.path(gang.queue)
    common = next(queue for queue in above if queue in path)
    below, own = path[: path.index(common)], asks_of(part_of(victim))
    if rule is EvictionRule.RECLAIM:
        toward = above[above.index(common) - 1]
        if not (below and policy(above[0]).reclaim and toward in case.entitled[uid]):
            return False
        keys = book.claims(gang.queue, case.asks(uid))
    else:
        said, inside = policy(common).preempt, gang.queue == victim.workload.queue
        lower = victim.workload.priority < gang.priority and victim.evicted < SPARED
        if said is Preempt.NEVER or not lower:
            return False
        keys = book.claims(path[0], own)
        if inside or said is not Preempt.LOWER_PRIORITY or not keys:
            return inside or said is Preempt.LOWER_PRIORITY
    return any(
        own.get(key) and all(use.used(q, key) > book.guaranteed(q, key) for q in below) for key in keys
    )

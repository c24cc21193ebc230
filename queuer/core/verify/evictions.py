"""The verifier's look at evictions: a bond that has the place, victims that may be evicted (DESIGN 3.3)."""

from __future__ import annotations

from collections.abc import Iterator

from queuer.core.records import Eviction, EvictionRule
from queuer.core.verify.case import Case, Rule, Violation, part_of
from queuer.core.verify.quota import Use, asks_of
from queuer.domain.queue import Preempt


def check_bonds(case: Case) -> Iterator[Violation]:
    """Each eviction is for a bond that lists its victim; a bond has time left, and a new one somebody who leaves."""
    victims = {bond.uid: bond.victims for bond in case.plan.bonds}
    for eviction in case.plan.evictions:
        uid = eviction.beneficiary
        if uid not in case.bound or eviction.uid not in victims[uid]:
            text = f"no bond gives it a place for which {eviction.uid} goes"
            yield Violation(rule=Rule.BOND, uid=uid, text=text)
    for bond in case.plan.bonds:
        if bond.uid not in case.bound:
            continue
        if not bond.deadline > case.now:
            yield Violation(rule=Rule.BOND, uid=bond.uid, text="its bond has passed its deadline")
        if bond.uid in case.new and case.gone.isdisjoint(bond.victims):
            yield Violation(rule=Rule.BOND, uid=bond.uid, text="it is bound, though nobody leaves")


def check_victims(case: Case) -> Iterator[Violation]:
    """Each victim may be evicted at all, and by the rule that is named for its beneficiary. They go in the plan's
    order, when all that leaves already has left.
    """
    evictions = [e for e in case.plan.evictions if e.beneficiary in case.bound]
    if not evictions:
        return
    use = Use(case.book, case.use).count((part_of(case.running[u]) for u in case.releasing), times=-1)
    use.count(case.parts(case.started))
    for eviction in evictions:
        problem = _untouchable(case, eviction) or _not_permitted(case, eviction, use)
        if problem:
            text = f"{eviction.uid}, which it evicts, {problem}"
            yield Violation(rule=Rule.VICTIM, uid=eviction.beneficiary, text=text)
        if eviction.uid not in case.releasing:
            use.count([part_of(case.running[eviction.uid])], times=-1)


def _untouchable(case: Case, eviction: Eviction) -> str:
    victim = case.running[eviction.uid]
    rest = case.snapshot.tree.policy(case.book.path(victim.workload.queue)[0]).min_runtime or 0.0
    if not victim.workload.preemptible:
        return "is not preemptible"
    if victim.releasing:
        return "is leaving already"
    if case.now - victim.since < rest:
        return f"has run {case.now - victim.since:.0f} s of its queue's minRuntime {rest:.0f} s"
    if eviction.uid in case.pending[eviction.beneficiary].displaced_by:
        return "displaced it before"
    return ""


def _not_permitted(case: Case, eviction: Eviction, use: Use) -> str:
    """`use`: as the victim goes."""
    gang, victim = case.workload(eviction.beneficiary), case.running[eviction.uid].workload
    book, policy, asks = case.book, case.snapshot.tree.policy, case.asks(eviction.beneficiary)
    path, above = book.path(victim.queue), book.path(gang.queue)
    common = next(queue for queue in above if queue in path)
    below = path[: path.index(common)]
    if eviction.rule is EvictionRule.RECLAIM:
        if not below:
            return f"is of {common} as well, and reclaim is between queues"
        if not policy(above[0]).reclaim:
            return f"is of {path[0]}, and reclaim is off for {above[0]}"
        toward = above[above.index(common) - 1]
        if toward not in case.entitled[gang.uid]:
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
    own = asks_of(part_of(case.running[eviction.uid]))
    if any(own.get(key) and all(use.used(q, key) > book.guaranteed(q, key) for q in below) for key in keys):
        return ""
    return f"is of {path[0]}, which would not be above its guarantee when it goes"

"""The verifier: judges a plan in plain Python, without a line of the code that made it.

Nodes, quota rows, rights to evict, landing, and reservations are checked, wherever the plan touches
them. Optimality is not judged: a sound plan may be a poor one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from queuer.domain.queue import QueueState
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.records import Plan, Snapshot
from queuer.solver.verify.case import Rule, VerifierCase, Violation, least, part_of
from queuer.solver.verify.evictions import check_bonds, check_victims
from queuer.solver.verify.places import check_capacity, check_gangs, check_landing
from queuer.solver.verify.quota import Use
from queuer.solver.verify.reservations import check_reservations

__all__ = ["Rule", "Violation", "verify"]

MOST = 2**62
"""Beyond which nothing is summed, here and in what makes plans."""


def verify(snapshot: Snapshot, plan: Plan, *, now: float) -> tuple[Violation, ...]:
    """Every rule that the plan breaks; () = sound. Never raises on a wrong plan."""
    case = VerifierCase(snapshot, plan, now)
    wrong = tuple(check_references(case))
    if wrong:  # nothing further can be looked up
        return wrong
    places = (check_gangs, check_capacity, check_landing, check_reservations)
    rights = (check_closed, check_quota, check_non_preemptible, check_bonds, check_victims)
    return tuple(violation for check in (*places, *rights, check_explanations) for violation in check(case))


def check_references(case: VerifierCase) -> Iterator[Violation]:
    """Every name stands for something, once, and what is asked can be summed."""
    plan, waiting, running = case.plan, case.pending.keys(), case.running.keys()
    for what, uids, known in (
        ("admissions", [a.uid for a in plan.admissions], waiting),
        ("evictions", [e.uid for e in plan.evictions], running),
        ("bonds", [b.uid for b in plan.bonds if b.uid not in running], waiting),
        ("reservations", [r.uid for r in plan.reservations], waiting),
        ("order", plan.order, waiting),
        ("explanations", plan.explanations.keys(), waiting),
    ):
        if not known >= (once := set(uids)) or len(once) < len(uids):
            wrong = {uid for uid, times in Counter(uids).items() if times > 1 or uid not in known}
            text = f"{what} names it twice, or it is not there"
            yield from (Violation(Rule.REFERENCE, uid, text) for uid in wrong)
    held = [(r.uid, r.assignments) for r in plan.reservations]
    for uid, rows in (pair for pair in (*case.rows.items(), *held) if pair[0] in waiting):
        workload = case.workload(uid)
        if not well_formed(workload):
            yield Violation(Rule.CLOSED, uid, "it asks for what cannot be summed")
        if not {row.pod_set for row in rows} <= {p.name for p in workload.pod_sets}:
            yield Violation(Rule.REFERENCE, uid, "a pod set is named that it does not have")
        if uid in case.rows and not case.states.keys() >= set(chain.from_iterable(row.nodes for row in rows)):
            yield Violation(Rule.REFERENCE, uid, "a node is named that is not there")


def well_formed(workload: Workload) -> bool:
    """Whether it asks for pods in numbers that can be summed; nothing is decided about one that does not."""
    sets = workload.pod_sets
    return 0 < len({p.name for p in sets}) == len(sets) and all(
        1 <= least(p) <= p.count and all(0 <= n * p.count <= MOST for n in p.requests.values()) for p in sets
    )


def check_closed(case: VerifierCase) -> Iterator[Violation]:
    """Nothing starts or is held in held and draining queues, or on hold."""
    tree = case.snapshot.tree
    for uid in case.rows:
        gang = case.workload(uid)
        leaf = gang.queue in tree and tree.is_leaf(gang.queue)
        if not leaf or tree.effective_state(gang.queue) is not QueueState.OPEN or gang.hold:
            yield Violation(Rule.CLOSED, uid, f"it is on hold, or {gang.queue} is not open")


def check_non_preemptible(case: VerifierCase) -> Iterator[Violation]:
    """Work that nobody may evict starts only inside the guarantee of its own queue, or where a bond held it."""
    for gang in map(case.workload, case.new):
        if not gang.preemptible and gang.queue not in case.entitled[gang.uid]:
            text = f"not entitled at {gang.queue}, and it could not be evicted"
            yield Violation(Rule.NON_PREEMPTIBLE, gang.uid, text)


def check_quota(case: VerifierCase) -> Iterator[Violation]:
    """Limits on every ancestor: now with all victims, and with them gone and all bonds counted."""
    starting = [uid for uid in case.rows if uid in case.started]
    now = Use(case.book, case.use).count(case.parts(starting))
    yield from _over(case, now, starting, when="now")
    if case.bound:
        before = Use(case.book, case.use).count((part_of(case.running[uid]) for uid in case.gone), times=-1)
        before.count(case.parts(case.held))
        then = Use(case.book, before).count(case.parts(case.new))
        yield from _over(case, then, case.new, when="with the victims gone")


def _over(case: VerifierCase, use: Use, coming: Sequence[str], *, when: str) -> Iterator[Violation]:
    for path, key, text in use.broken():
        under = [uid for uid in coming if path in case.book.path(case.workload(uid).queue)]
        last = [uid for uid in under if case.asks(uid).get(key)][-1]
        yield Violation(Rule.QUOTA, last, f"{text} {when}")


def check_explanations(case: VerifierCase) -> Iterator[Violation]:
    """Exactly one explanation for every gang that waits, and bound gangs say so."""
    explained = case.plan.explanations
    if len(explained) + len(case.started) != len(case.pending) or not explained.keys().isdisjoint(
        case.started
    ):
        for uid in sorted((case.pending.keys() - case.started) ^ explained.keys()):
            text = "starts, yet has a reason to wait" if uid in explained else "waits without a reason"
            yield Violation(Rule.EXPLANATION, uid, text)
    for uid in case.bound.keys() & explained.keys():
        if (token := explained[uid].primary.token) is not Token.WAITING_FOR_PREEMPTED_WORKLOADS:
            yield Violation(Rule.EXPLANATION, uid, f"bound, yet its reason is {token}")

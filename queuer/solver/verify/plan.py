"""Whether a plan is sound: every rule of DESIGN 3 checked node by node and row by row.

Optimality is not judged here: a sound plan may be a poor one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from queuer.domain.queue import Order, QueueState
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.records import Pending, Plan, Snapshot
from queuer.solver.verify.case import Case, Rule, Violation, least, part_of
from queuer.solver.verify.evictions import check_bonds, check_victims
from queuer.solver.verify.landing import check_landing
from queuer.solver.verify.places import check_capacity, check_gangs
from queuer.solver.verify.quota import Use
from queuer.solver.verify.reservations import check_reservations

MOST = 2**62
"""Beyond which nothing is summed, here and in what makes plans."""


def verify(snapshot: Snapshot, plan: Plan, *, now: float) -> tuple[Violation, ...]:
    """Every rule that the plan breaks; () = sound. Never raises on a wrong plan."""
    case = Case(snapshot, plan, now)
    wrong = tuple(check_references(case))
    if wrong:  # nothing further can be looked up
        return wrong
    checks = (*ADMITTING, check_non_preemptible, check_strict, check_explanations)
    later = (check_reservations, check_bonds, check_victims, check_dropped)
    return tuple(violation for check in (*checks, *later) for violation in check(case))


def check_references(case: Case) -> Iterator[Violation]:
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
            wrong = (uid for uid, times in Counter(uids).items() if times > 1 or uid not in known)
            yield from (
                Violation(Rule.REFERENCE, u, f"{what} names it twice, or it is not there") for u in wrong
            )
    for uid, rows in (*case.rows.items(), *((r.uid, r.assignments) for r in plan.reservations)):
        if uid not in waiting:
            continue
        if not well_formed(case.workload(uid)):
            yield Violation(Rule.CLOSED, uid, "it asks for what cannot be summed")
        if not {row.pod_set for row in rows} <= {p.name for p in case.workload(uid).pod_sets}:
            yield Violation(Rule.REFERENCE, uid, "a pod set is named that it does not have")
        nodes = chain.from_iterable(row.nodes for row in case.new.get(uid, ()))
        if gone := [name for name in nodes if name not in case.states]:
            yield Violation(Rule.REFERENCE, uid, f"there is no node {gone[0]}")


def well_formed(workload: Workload) -> bool:
    """Whether it asks for pods in numbers that can be summed; nothing is decided about one that does not."""
    sets, whole = workload.pod_sets, [workload.priority]
    for p in sets:
        whole += (p.count, least(p), *p.requests.values())
    times = (workload.submitted, workload.max_runtime or 0.0, workload.estimate or 0.0)
    return (
        0 < len({p.name for p in sets}) == len(sets)
        and set(map(type, whole)) == {int}
        and set(map(type, times)) <= {int, float}
        and all(1 <= least(p) <= p.count for p in sets)
        and all(0 <= n * p.count <= MOST for p in sets for n in p.requests.values())
        and all(-MOST <= number <= MOST for number in (workload.priority, *times))
    )


def check_closed(case: Case) -> Iterator[Violation]:
    """Nothing new starts in held and draining queues, or on hold."""
    tree, states = case.snapshot.tree, dict[str, str]()
    for queue in {case.workload(uid).queue for uid in case.new}:
        leaf = queue in tree and tree.is_leaf(queue)
        states[queue] = tree.effective_state(queue) if leaf else "no leaf of the tree"
    for uid in case.new:
        gang = case.workload(uid)
        if states[gang.queue] != QueueState.OPEN or gang.hold:
            text = "it is on hold" if gang.hold else f"{gang.queue} is {states[gang.queue]}"
            yield Violation(Rule.CLOSED, uid, text, gang.queue)


def check_non_preemptible(case: Case) -> Iterator[Violation]:
    """Work that nobody may evict starts only inside the guarantee of its own queue, or where a bond held it."""
    for gang in (case.workload(uid) for uid in case.new if uid not in case.resumed):
        if not gang.preemptible and gang.queue not in case.entitled[gang.uid]:
            text = f"not entitled at {gang.queue}, and it could not be evicted"
            yield Violation(Rule.NON_PREEMPTIBLE, gang.uid, text, gang.queue)


def check_quota(case: Case) -> Iterator[Violation]:
    """Limits on every ancestor: now with all victims, and with them gone and all bonds counted."""
    starting = [uid for uid in case.new if uid in case.started]
    now = Use(case.book, case.use).count(case.parts(starting))
    yield from _over(case, now, starting, when="now")
    if case.bound:
        leaving = (part_of(case.running[uid]) for uid in case.gone)
        before = Use(case.book, case.use).count(leaving, times=-1)
        before.count(case.parts([*case.standing, *case.resumed]))
        coming = [uid for uid in case.new if uid not in case.resumed]
        then = Use(case.book, before).count(case.parts(coming))
        yield from _over(case, then, coming, when="with the victims gone")


def _over(case: Case, use: Use, coming: Sequence[str], *, when: str) -> Iterator[Violation]:
    for path, key, text in use.broken():
        under = [uid for uid in coming if path in case.book.path(case.workload(uid).queue)]
        last = [uid for uid in under if case.asks(uid).get(key)][-1]
        yield Violation(Rule.QUOTA, last, f"{text} {when}", path)


def check_strict(case: Case) -> Iterator[Violation]:
    """In a leaf with `order: strict`, nothing passes a refused gang unless their flavors are disjoint. What a bond held
    before passes nobody.
    """
    tree = case.snapshot.tree
    fresh = (case.pending[uid] for uid in case.new if uid not in case.resumed)
    strict = {q.path for q in tree if tree.policy(q.path).order is Order.STRICT}
    passing = sorted((p for p in fresh if p.workload.queue in strict), key=_turn)
    latest = {p.workload.queue: _turn(p) for p in passing}
    heads: dict[str, list[Pending]] = {queue: [] for queue in latest}
    for pending in case.snapshot.pending if latest else ():
        gang = pending.workload
        if gang.queue in latest and _turn(pending) < latest[gang.queue] and gang.uid not in case.rows:
            heads[gang.queue] += [pending] if well_formed(gang) and not gang.hold else []
    for pending in passing:
        mine, flavors = pending.workload, _allowed(case, pending.workload)
        ahead = (h.workload for h in heads[mine.queue] if _turn(h) < _turn(pending))
        if (head := next((h for h in ahead if not flavors.isdisjoint(_allowed(case, h))), None)) is not None:
            yield Violation(Rule.STRICT, mine.uid, f"passes {head.uid}, which waits before it", mine.queue)


def _turn(pending: Pending) -> tuple[bool, int, float]:
    return (not pending.first, -pending.workload.priority, pending.workload.submitted)


def _allowed(case: Case, workload: Workload) -> set[str]:
    found: set[str] = set()
    for pod_set in workload.pod_sets:
        asked = (case.book.flavors_for(workload.queue, r) for r, amount in pod_set.requests.items() if amount)
        found |= set(case.tolerations).intersection(*(names for names in asked if names is not None))
    return found


def check_explanations(case: Case) -> Iterator[Violation]:
    """Exactly one explanation for every gang that waits, and bound gangs say so."""
    explained, started = case.plan.explanations.keys(), case.started.keys()
    # All of them are pending (check_references), so the counts tell whether the sets can differ at all.
    whole = len(explained) + len(started) == len(case.pending) and explained.isdisjoint(started)
    for uid in () if whole else sorted((case.pending.keys() - started) ^ explained):
        text = "starts, yet has a reason to wait" if uid in explained else "waits without a reason"
        yield Violation(Rule.EXPLANATION, uid, text)
    for uid in case.bound.keys() & explained:
        token = case.plan.explanations[uid].primary.token
        if token is not Token.WAITING_FOR_PREEMPTED_WORKLOADS:
            yield Violation(Rule.EXPLANATION, uid, f"bound, yet its reason is {token}")


def check_dropped(case: Case) -> Iterator[Violation]:
    """No bond ends in silence while all bonds of earlier cycles stand, with their victims gone and nobody else."""
    bonds = tuple(b for b in case.snapshot.bonds if b.uid in case.pending and case.until(b) > case.now)
    dropped = [bond.uid for bond in bonds if bond.uid not in case.rows]
    tokens = {uid: why.primary.token for uid in dropped if (why := case.plan.explanations.get(uid))}
    silent = [uid for uid in dropped if tokens.get(uid) is not Token.SOLVER_DEFERRED]
    if silent:
        going = {uid for bond in bonds for uid in bond.victims}
        staying = ((a, a.releasing and a.workload.uid in going) for a in case.snapshot.admitted)
        admitted = tuple(replace(a, releasing=leaves) for a, leaves in staying)
        plan = replace(case.plan, admissions=(), evictions=(), bonds=bonds, reservations=())
        before = Case(replace(case.snapshot, bonds=(), admitted=admitted), plan, case.now)
        if not any(True for check in (check_references, *ADMITTING) for _ in check(before)):
            for uid in silent:
                yield Violation(Rule.BOND, uid, "its bond was dropped, though it stands")


ADMITTING = (check_gangs, check_closed, check_quota, check_capacity, check_landing)
"""What holds for each place that is given, whoever had to go for it."""

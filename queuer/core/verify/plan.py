"""Whether a plan is sound: every rule of DESIGN 3 checked node by node and row by row.

Optimality is not judged here: a sound plan may be a poor one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain

from queuer.core.records import Pending, Plan, Snapshot
from queuer.core.verify.case import Case, Rule, Violation, part_of
from queuer.core.verify.evictions import check_bonds, check_victims
from queuer.core.verify.landing import check_landing
from queuer.core.verify.places import check_capacity, check_gangs
from queuer.core.verify.quota import Use
from queuer.core.verify.reservations import check_reservations
from queuer.domain.queue import Order, QueueState
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload

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
    groups: tuple[tuple[str, Collection[str], Set[str]], ...] = (
        ("admissions", [a.uid for a in plan.admissions], waiting),
        ("evictions", [e.uid for e in plan.evictions], running),
        ("bonds", [b.uid for b in plan.bonds if b.uid not in running], waiting),
        ("reservations", [r.uid for r in plan.reservations], waiting),
        ("order", plan.order, waiting),
        ("explanations", plan.explanations, waiting),
    )
    for what, uids, known in groups:
        if not all(map(known.__contains__, uids)) or len(set(uids)) < len(uids):
            for uid, times in Counter(uids).items():
                if times > 1 or uid not in known:
                    text = (
                        f"{what} names it {times} times"
                        if uid in known
                        else f"{what} names it, and it is not there"
                    )
                    yield Violation(rule=Rule.REFERENCE, uid=uid, text=text)
    kept = ((r.uid, r.assignments) for r in plan.reservations)
    for uid, rows in (*case.rows.items(), *kept):
        if uid not in waiting:
            continue
        if not well_formed(case.workload(uid)):
            yield Violation(rule=Rule.CLOSED, uid=uid, text="it asks for what cannot be summed")
        sets = {p.name for p in case.workload(uid).pod_sets}
        wrong = [f"pod set {row.pod_set}" for row in rows if row.pod_set not in sets]
        named = chain.from_iterable((*row.nodes, *(row.hosts or ())) for row in case.new.get(uid, ()))
        wrong += [f"node {name}" for name in named if name not in case.states]
        if wrong:
            yield Violation(rule=Rule.REFERENCE, uid=uid, text=f"there is no {wrong[0]}")


def well_formed(workload: Workload) -> bool:
    """Whether it asks for pods in numbers that can be summed; nothing is decided about one that does not."""
    sets, times = workload.pod_sets, (workload.submitted, workload.max_runtime or 0, workload.estimate or 0)
    return (
        0 < len({p.name for p in sets}) == len(sets)
        and all(type(n) is int for n in (workload.priority, *(p.count for p in sets)))
        and all(p.min_count is None or type(p.min_count) is int for p in sets)
        and all(1 <= (p.count if p.min_count is None else p.min_count) <= p.count for p in sets)
        and all(type(n) is int and 0 <= n * p.count <= MOST for p in sets for n in p.requests.values())
        and all(type(t) in (int, float) and -MOST <= t <= MOST for t in (workload.priority, *times))
    )


def check_closed(case: Case) -> Iterator[Violation]:
    """Nothing new starts in held and draining queues, or on hold."""
    tree, states = case.snapshot.tree, dict[str, str]()
    for queue in {case.workload(uid).queue for uid in case.new}:
        leaf = queue in tree and tree.is_leaf(queue)
        states[queue] = tree.effective_state(queue) if leaf else "no leaf of the tree"
    for uid in case.new:
        workload = case.workload(uid)
        if states[workload.queue] != QueueState.OPEN:
            text = f"{workload.queue} is {states[workload.queue]}"
            yield Violation(rule=Rule.CLOSED, uid=uid, text=text, at=workload.queue)
        if workload.hold:
            yield Violation(rule=Rule.CLOSED, uid=uid, text="it is on hold")


def check_quota(case: Case) -> Iterator[Violation]:
    """Limits on every ancestor: now with all victims, and with them gone and all bonds counted."""
    now = Use(case.book, case.use).count(case.parts(case.started))
    yield from _over(case, now, [*case.started], when="now")
    if case.bound:
        leaving = (part_of(case.running[uid]) for uid in case.gone)
        before = Use(case.book, case.use).count(leaving, times=-1)
        before.count(case.parts([*case.standing, *case.resumed]))
        coming = [uid for uid in case.new if uid not in case.resumed]
        then = Use(case.book, before).count(case.parts(coming))
        yield from _over(case, then, coming, when="with the victims gone")


def _over(case: Case, use: Use, coming: Sequence[str], *, when: str) -> Iterator[Violation]:
    for path, key, text in use.broken():
        asking = (
            u for u in coming if path in case.book.path(case.workload(u).queue) and case.asks(u).get(key)
        )
        yield Violation(rule=Rule.QUOTA, uid=case.last(asking), text=f"{text} {when}", at=path)


def check_non_preemptible(case: Case) -> Iterator[Violation]:
    """Work that nobody may evict starts only inside the guarantee of its own queue, or where a bond held it."""
    for uid in case.new:
        workload = case.workload(uid)
        if not workload.preemptible and uid not in case.resumed and workload.queue not in case.entitled[uid]:
            text = f"not entitled at {workload.queue}, and it could not be evicted"
            yield Violation(rule=Rule.NON_PREEMPTIBLE, uid=uid, text=text, at=workload.queue)


def check_strict(case: Case) -> Iterator[Violation]:
    """In a leaf with `order: strict`, nothing passes a refused gang unless their flavors are disjoint. What a bond
    held before passes nobody.
    """
    tree = case.snapshot.tree
    passing: dict[str, list[Pending]] = {}
    for uid in case.new:
        queue = case.workload(uid).queue
        if uid not in case.resumed and queue in tree and tree.policy(queue).order is Order.STRICT:
            passing.setdefault(queue, []).append(case.pending[uid])
    for waiting in case.snapshot.pending if passing else ():
        head = waiting.workload
        if head.queue not in passing or head.hold or head.uid in case.new or head.uid in case.bound:
            continue
        for pending in passing[head.queue]:
            ahead = _turn(waiting) < _turn(pending) if well_formed(head) else False
            if ahead and not _allowed(case, head).isdisjoint(_allowed(case, pending.workload)):
                text = f"passes {head.uid}, which waits before it in {head.queue}"
                yield Violation(rule=Rule.STRICT, uid=pending.workload.uid, text=text, at=head.queue)


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
        yield Violation(rule=Rule.EXPLANATION, uid=uid, text=text)
    for uid in case.bound.keys() & explained:
        token = case.plan.explanations[uid].primary.token
        if token is not Token.WAITING_FOR_PREEMPTED_WORKLOADS:
            yield Violation(rule=Rule.EXPLANATION, uid=uid, text=f"bound, yet its reason is {token}")


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
                yield Violation(rule=Rule.BOND, uid=uid, text="its bond was dropped, though it stands")


ADMITTING = (check_gangs, check_closed, check_quota, check_capacity, check_landing)
"""What holds for each place that is given, whoever had to go for it."""

"""Whether a plan is sound: every rule of DESIGN 3 checked node by node and row by row, in plain Python.

It shares no code with the greedy part, the model or `queuer.domain.quota`; only the records and
kube-scheduler's matching rules (`queuer.domain.nodes`) are common. Optimality is not judged here: a sound
plan may be a poor one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cache

from queuer.domain.queue import Order, QueueState
from queuer.domain.reasons import Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Assignment, Pending, Plan, Snapshot
from queuer.solver.verify.case import Case, Rule, Violation, well_formed
from queuer.solver.verify.evictions import check_bonds, check_victims
from queuer.solver.verify.places import check_capacity, check_landing
from queuer.solver.verify.quota import Amounts, Key, Uses, broken_limits
from queuer.solver.verify.reservations import check_reservations


def verify(snapshot: Snapshot, plan: Plan, *, now: float) -> tuple[Violation, ...]:
    """Every rule that the plan breaks; () = sound. Never raises on a wrong plan."""
    case = Case(snapshot, plan, now)
    wrong = tuple(check_references(case))
    if wrong:  # nothing further can be looked up
        return wrong
    checks = (
        check_gangs,
        check_levels,
        check_quota,
        check_non_preemptible,
        check_closed,
        check_strict,
        check_explanations,
        check_capacity,
        check_landing,
        check_reservations,
        check_bonds,
        check_victims,
    )
    return tuple(violation for check in checks for violation in check(case))


def check_references(case: Case) -> Iterator[Violation]:
    """Every name stands for something, once, that can be summed, and every wave is a number from 0 on."""
    waiting, running = case.pending.keys(), case.running.keys()
    groups: tuple[tuple[str, Collection[str], Set[str]], ...] = (
        ("admissions", [a.uid for a in case.plan.admissions], waiting),
        ("evictions", [e.uid for e in case.plan.evictions], running),
        ("bonds", [b.uid for b in case.plan.bonds], waiting | running if case.plan.bonds else waiting),
        ("reservations", [r.uid for r in case.plan.reservations], waiting),
        ("order", case.plan.order, waiting),
        ("explanations", case.plan.explanations, waiting),
    )
    for what, uids, known in groups:
        for uid in () if all(map(known.__contains__, uids)) else sorted(set(uids) - known):
            text = f"{what} names a workload that cannot be there"
            yield Violation(rule=Rule.REFERENCE, uid=uid, text=text)
        if not isinstance(uids, Mapping) and len(set(uids)) < len(uids):
            for uid, times in Counter(uids).items():
                if times > 1:
                    yield Violation(rule=Rule.REFERENCE, uid=uid, text=f"{what} names it {times} times")
    for admission in case.plan.admissions:
        if not admission.wave >= 0:  # neither is nan
            text = f"{admission.wave} is no wave"
            yield Violation(rule=Rule.REFERENCE, uid=admission.uid, text=text)
    kept = [(r.uid, r.assignments) for r in case.plan.reservations]
    for uid, rows in (*case.started.items(), *case.bound.items(), *kept):
        sets = case.sets(uid) if uid in case.pending else ()
        if uid in case.pending and not well_formed(case.workload(uid)):
            yield Violation(rule=Rule.CLOSED, uid=uid, text="it asks for what cannot be summed")
        for row in rows:
            if row.pod_set not in sets:
                yield Violation(rule=Rule.REFERENCE, uid=uid, text=f"there is no pod set {row.pod_set}")
            for name in (*row.nodes, *(row.hosts or ())):
                if name not in case.states and case.new.get(uid) is rows:
                    yield Violation(rule=Rule.REFERENCE, uid=uid, text=f"there is no node {name}")


def check_gangs(case: Case) -> Iterator[Violation]:
    """Whole gangs on allowed flavors and nodes, inside pins that lead nowhere else."""
    for uid, rows in case.new.items():
        workload, avoid = case.workload(uid), case.pending[uid].avoid
        named = [row.pod_set for row in rows]
        by_set = {row.pod_set: row for row in rows}
        for pod_set in workload.pod_sets:
            least = pod_set.count if pod_set.min_count is None else pod_set.min_count
            row, times = by_set.get(pod_set.name), named.count(pod_set.name)
            if row is None or times != 1:
                if times > 1 or least > 0:
                    text = f"pod set {pod_set.name} is assigned {times} times"
                    yield Violation(rule=Rule.GANG, uid=uid, text=text)
                continue
            if not least <= row.count <= pod_set.count or any(n <= 0 for n in row.nodes.values()):
                text = f"pod set {pod_set.name}: {dict(row.nodes)}, wanted {least} to {pod_set.count}"
                yield Violation(rule=Rule.GANG, uid=uid, text=text)
            yield from _check_flavor(case, workload, pod_set, row)
            yield from _check_nodes(case, uid, pod_set, row, avoid)


def _check_flavor(case: Case, workload: Workload, pod_set: PodSet, row: Assignment) -> Iterator[Violation]:
    if row.flavor not in case.declared:
        yield Violation(rule=Rule.FLAVOR, uid=workload.uid, text=f"there is no flavor {row.flavor}")
    for resource, amount in pod_set.requests.items():
        allowed = case.rows.flavors_for(workload.queue, resource) if amount else None
        if allowed is not None and row.flavor not in allowed:
            text = f"{workload.queue} does not allow {row.flavor} for {resource}"
            yield Violation(rule=Rule.FLAVOR, uid=workload.uid, text=text)
    for name in row.nodes:
        if case.flavor_at(name) != row.flavor:
            text = f"{name} is of flavor {case.flavor_at(name)}, not {row.flavor}"
            yield Violation(rule=Rule.FLAVOR, uid=workload.uid, text=text)


def _check_nodes(
    case: Case, uid: str, pod_set: PodSet, row: Assignment, avoid: frozenset[str]
) -> Iterator[Violation]:
    terms, pin = case.terms(pod_set, row.flavor), case.pin(pod_set, row)
    for name, count in row.nodes.items():
        if not case.states[name].node.accepts(terms) or name in avoid:
            yield Violation(rule=Rule.NODE, uid=uid, text=f"{name} takes no pod of {pod_set.name}")
        elif name not in pin:
            yield Violation(rule=Rule.PIN, uid=uid, text=f"{name} is outside the pin of {pod_set.name}")
        if pod_set.exclusive_host and count > 1:
            text = f"{count} pods of {pod_set.name} on {name}, one per host is asked"
            yield Violation(rule=Rule.EXCLUSIVE, uid=uid, text=text)
    astray = sorted(n for n in pin if case.flavor_at(n) != row.flavor or n in avoid)
    if astray:
        text = f"the pin of {pod_set.name} lets pods onto {', '.join(astray[:3])}"
        yield Violation(rule=Rule.PIN, uid=uid, text=text)


def check_levels(case: Case) -> Iterator[Violation]:
    """Required levels: all planned nodes, and all that the pins leave open, are in one domain."""
    for uid, rows in case.new.items():
        workload, sets = case.workload(uid), case.sets(uid)
        groups = [(workload.required, rows)] + [(sets[row.pod_set].required, (row,)) for row in rows]
        for level, together in groups:
            if level is None:
                continue
            index = case.snapshot.topology.find(level)
            if index is None:
                yield Violation(rule=Rule.LEVEL, uid=uid, text=f"there is no level {level}")
                continue
            planned = {n for row in together for n in row.nodes}
            pinned = {n for row in together for n in case.pin(sets[row.pod_set], row)}
            for rule, names in ((Rule.LEVEL, planned), (Rule.PIN, pinned)):
                found = {case.snapshot.topology.domain(case.states[n].node, index) for n in names}
                if len(found) > 1 or None in found:
                    yield Violation(
                        rule=rule, uid=uid, text=f"{len(found)} domains of level {level}, one is asked"
                    )


def check_quota(case: Case) -> Iterator[Violation]:
    """Limits on every ancestor: now with all victims, and with them gone and all bonds counted."""
    standing = [uid for uid in case.bound if uid not in case.new]
    now_parts = [case.part(uid) for uid in case.started]
    yield from _limits(case.used, now_parts, when="now")
    held = [*standing, *case.resumed]
    before = case.uses(without=case.leaving, bonds=held)
    later = [case.part(uid) for uid in case.new if uid not in case.resumed]
    yield from _limits(before, later, when="with the victims gone")


def _limits(before: Uses, parts: Sequence[tuple[str, Amounts]], *, when: str) -> Iterator[Violation]:
    """`parts`: queues and amounts that come on top."""
    after, asked = before.copy(), dict[str, dict[Key, int]]()
    for queue, amounts in parts:
        total = asked.setdefault(queue, {})
        for key, amount in amounts.items():
            total[key] = total.get(key, 0) + amount
    for queue, total in asked.items():
        after.count(queue, total)
    for path, text in broken_limits(before, after, asked.items()):
        yield Violation(rule=Rule.QUOTA, uid="", at=path, text=f"{text} {when}")


def check_non_preemptible(case: Case) -> Iterator[Violation]:
    """Work that nobody may evict starts only inside the guarantee of its own queue, or where a bond held it."""
    if all(case.workload(uid).preemptible for uid in case.in_turn):
        return
    uses = case.uses(bonds=[uid for uid in case.bound if uid not in case.new])
    for uid in case.in_turn:
        workload, amounts = case.workload(uid), case.part(uid)[1]
        permitted = workload.preemptible or uid in case.resumed
        if not permitted and not uses.entitled(workload.queue, amounts, at=workload.queue):
            text = f"not entitled at {workload.queue}, and it could not be evicted"
            yield Violation(rule=Rule.NON_PREEMPTIBLE, uid=uid, text=text)
        uses.count(workload.queue, amounts)


def check_closed(case: Case) -> Iterator[Violation]:
    """Nothing new starts in held and draining queues, or on hold."""
    tree = case.snapshot.tree
    leaves, state_of = frozenset(tree.leaves), cache(tree.effective_state)
    for uid in case.new:
        workload = case.workload(uid)
        if workload.queue not in leaves:
            yield Violation(rule=Rule.CLOSED, uid=uid, text=f"{workload.queue} is no leaf of the tree")
        elif (state := state_of(workload.queue)) is not QueueState.OPEN:
            yield Violation(rule=Rule.CLOSED, uid=uid, text=f"{workload.queue} is {state}")
        if workload.hold:
            yield Violation(rule=Rule.CLOSED, uid=uid, text="it is on hold")


def check_strict(case: Case) -> Iterator[Violation]:
    """In a leaf with `order: strict`, nothing passes a refused gang unless their flavors are disjoint. What a bond
    held before passes nobody.
    """
    tree = case.snapshot.tree
    lines: dict[str, list[Pending]] = {q: [] for q in tree.leaves if tree.policy(q).order is Order.STRICT}
    for pending in case.snapshot.pending if lines else ():
        if pending.workload.queue in lines and well_formed(pending.workload):
            lines[pending.workload.queue].append(pending)
    for queue, unordered in lines.items():
        line = sorted(unordered, key=_turn)
        refused: list[Pending] = []
        for pending in line:
            uid = pending.workload.uid
            if uid in case.new or uid in case.bound:
                for head in refused if uid in case.new and uid not in case.resumed else ():
                    if _turn(head) < _turn(pending) and _meet(case, head.workload, pending.workload):
                        text = f"passes {head.workload.uid}, which waits before it in {queue}"
                        yield Violation(rule=Rule.STRICT, uid=uid, text=text)
            elif not pending.workload.hold:
                refused.append(pending)


def _turn(pending: Pending) -> tuple[bool, int, float]:
    return (not pending.first, -pending.workload.priority, pending.workload.submitted)


def _meet(case: Case, left: Workload, right: Workload) -> bool:
    return not _allowed(case, left).isdisjoint(_allowed(case, right))


def _allowed(case: Case, workload: Workload) -> set[str]:
    found: set[str] = set()
    for pod_set in workload.pod_sets:
        names: Set[str] = case.declared
        for resource, amount in pod_set.requests.items():
            allowed = case.rows.flavors_for(workload.queue, resource) if amount else None
            names = names if allowed is None else names & allowed
        found |= names
    return found


def check_explanations(case: Case) -> Iterator[Violation]:
    """Exactly one explanation for every gang that waits, and bound gangs say so."""
    explained, started = case.plan.explanations.keys(), case.started.keys()
    # All of them are pending (check_references), so the counts tell whether the sets can differ at all.
    whole = len(explained) + len(started) == len(case.pending) and explained.isdisjoint(started)
    for uid in () if whole else sorted((case.pending.keys() - started) ^ explained):
        text = "starts, yet has a reason to wait" if uid in explained else "waits without a reason"
        yield Violation(rule=Rule.EXPLANATION, uid=uid, text=text)
    for uid in sorted(case.bound.keys() & explained):
        token = case.plan.explanations[uid].primary.token
        if token is not Token.WAITING_FOR_PREEMPTED_WORKLOADS:
            yield Violation(rule=Rule.EXPLANATION, uid=uid, text=f"bound, yet its reason is {token}")

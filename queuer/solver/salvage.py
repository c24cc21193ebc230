"""What is left where the verifier refuses a plan: those at fault wait, the rest is carried out.

No plan should be refused. Where one is, by a fault of ours, that must not keep a whole cluster waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from queuer.domain.reasons import Deferral, Explanation
from queuer.solver.arrays import Arrays
from queuer.solver.bonds import prolonged
from queuer.solver.explain import sentences
from queuer.solver.problem import Assignment, Bond, CycleStats, Plan, Snapshot, SolveStatus
from queuer.solver.verify import Rule, Violation
from queuer.solver.verify.case import Case

ROUNDS = 12
"""Times that gangs are taken out of a plan before it is given up: of those that are too many together twice as many as
the time before, from one on.
"""
MOST_LISTED = 3


def listed(wrong: Sequence[Violation]) -> str:
    """The first of them, for people."""
    return "; ".join(map(str, wrong[:MOST_LISTED]))


def offenders(snapshot: Snapshot, plan: Plan, wrong: Sequence[Violation], *, most: int = 1) -> list[str]:
    """The gangs for which rules are broken, those for whose sake a victim would wrongly go included. Where all together
    are too many, or others are robbed, the last by turn of those that start or are bound anew there, so many at `most`
    and half of them; where nobody is, of all. Who has a reservation that is not left whole is at fault itself: others
    may start on it by right.
    """
    case = Case(snapshot, plan, 0.0)
    anew = _anew(case)
    robbed = {v.uid for v in wrong if v.rule is Rule.LANDING} - anew.keys()
    named = {v.uid for v in wrong} - robbed
    found = {e.beneficiary for e in plan.evictions if e.uid in named}
    found |= named & {*case.pending, *(a.uid for a in plan.admissions), *(b.uid for b in plan.bonds)}
    nodes = _hosts_of(case, robbed) | {v.at for v in wrong if v.rule is Rule.CAPACITY}
    queues = frozenset(v.at for v in wrong if v.rule is Rule.QUOTA)
    there = [uid for uid, rows in anew.items() if _lies(case, uid, rows, nodes=nodes, queues=queues)]
    if not found:
        there = there or [*anew]
    half = max(1, len(there) // 2)
    return sorted(found.union(there[-min(most, half) :]))


def _anew(case: Case) -> dict[str, Sequence[Assignment]]:
    """What starts or is bound anew of what is known, in the order of the turns; who had none comes last."""
    standing = {bond.uid for bond in case.snapshot.bonds}
    found = {**case.started, **{uid: rows for uid, rows in case.bound.items() if uid not in standing}}
    return {uid: found[uid] for uid in (*case.plan.order, *found) if uid in found and uid in case.pending}


def _lies(
    case: Case, uid: str, rows: Sequence[Assignment], *, nodes: frozenset[str], queues: frozenset[str]
) -> bool:
    """Whether it may land on one of these nodes, or is in one of these queues."""
    lineage = case.snapshot.tree.lineage(case.workload(uid).queue) if queues else ()
    return not queues.isdisjoint(lineage) or not nodes.isdisjoint(_pinned(case, uid, rows))


def _hosts_of(case: Case, uids: Collection[str]) -> frozenset[str]:
    """Where pods of earlier cycles have still to land, and what is held for bound gangs."""
    rests = (rest for uid in uids if uid in case.running for rest in case.running[uid].unbound)
    held = (_pinned(case, uid, rows) for uid, rows in case.bound.items() if uid in uids)
    return frozenset().union(*(rest.hosts for rest in rests), *held)


def _pinned(case: Case, uid: str, rows: Iterable[Assignment]) -> frozenset[str]:
    sets = case.sets(uid)
    return frozenset().union(*(case.pin(sets[row.pod_set], row) for row in rows if row.pod_set in sets))


def salvaged(
    arrays: Arrays,
    plan: Plan,
    wrong: Sequence[Violation],
    *,
    now: float,
    judge: Callable[[Plan], Sequence[Violation]],
) -> tuple[Plan, Sequence[Violation]]:
    """The plan without those at fault; what is wrong with it even so. `judge`: the verifier."""
    left, gone = plan, set[str]()
    for number in range(ROUNDS):
        if not wrong:
            break
        gone.update(offenders(arrays.snapshot, left, wrong, most=2**number))
        left = _without(arrays, plan, gone, now=now)
        wrong = judge(left)
    return left, wrong


def _without(arrays: Arrays, plan: Plan, uids: Collection[str], *, now: float) -> Plan:
    """These wait, with the bonds and reservations that they had, or without their new ones. Who waits and was told no
    reason is told that it is tried again.
    """
    back = _standing(arrays, now=now)
    settled = {a.uid for a in plan.admissions} | {b.uid for b in plan.bonds}
    bonds = {b.uid: b for b in plan.bonds if b.uid not in uids}
    bonds |= {uid: bond for uid, bond in back.items() if uid in uids}
    reservations = [r for r in plan.reservations if r.uid not in uids]
    held = {r.uid for r in reservations}
    again = (r for r in arrays.snapshot.reservations if r.uid in settled & {*uids} and r.expires > now)
    admissions = tuple(a for a in plan.admissions if a.uid not in uids)
    waiting = arrays.offers.gangs.keys() - bonds.keys() - {a.uid for a in admissions}
    put_off = sorted(uid for uid in waiting if uid in settled or uid not in plan.explanations)
    later = Explanation(primary=sentences.deferred(Deferral.PLAN))
    told = {**plan.explanations, **dict.fromkeys(put_off, later)}
    told |= _told(arrays.snapshot, {uid: bond for uid, bond in back.items() if uid in uids})
    causes = Counter(plan.stats.causes) + Counter(dict.fromkeys(put_off, Deferral.PLAN).values())
    deferred = plan.stats.deferred + len(put_off)
    stats = replace(plan.stats, status=SolveStatus.FEASIBLE, deferred=deferred, causes=dict(causes))
    return replace(
        plan,
        admissions=admissions,
        bonds=tuple(bonds.values()),
        evictions=tuple(e for e in plan.evictions if e.beneficiary not in uids),
        reservations=(*reservations, *(r for r in again if r.uid not in held and r.uid not in back)),
        explanations=told,
        stats=stats,
    )


def nothing(arrays: Arrays, *, now: float, note: str) -> Plan:
    """The plan that starts nobody and keeps what stands: what is left when no sound plan was found."""
    snapshot, offers = arrays.snapshot, arrays.offers
    held = _standing(arrays, now=now)
    later = Explanation(primary=sentences.deferred(Deferral.PLAN))
    deferred = {uid: later for uid in offers.gangs if uid not in held}
    return Plan(
        admissions=(),
        evictions=(),
        bonds=tuple(held.values()),
        reservations=tuple(r for r in snapshot.reservations if r.uid in offers.gangs and r.expires > now),
        explanations={**offers.aside, **_told(snapshot, held), **deferred},
        order=tuple(p.workload.uid for p in snapshot.pending),
        stats=CycleStats(
            status=SolveStatus.FAILED,
            considered=len(snapshot.pending),
            deferred=len(deferred),
            causes={Deferral.PLAN: len(deferred)} if deferred else {},
            note=note,
        ),
    )


def _standing(arrays: Arrays, *, now: float) -> dict[str, Bond]:
    """Bonds of earlier cycles that last, by uid."""
    bonds = (prolonged(bond, arrays.holds) for bond in arrays.snapshot.bonds)
    return {b.uid: b for b in bonds if b.uid in arrays.offers.gangs and b.deadline > now}


def _told(snapshot: Snapshot, held: Mapping[str, Bond]) -> dict[str, Explanation]:
    """The reasons of those that are bound."""
    known = snapshot.workloads()
    leaving = {a.workload.uid for a in snapshot.admitted if a.releasing}
    return {
        uid: sentences.bound(bond, [v for v in bond.victims if v in leaving], known.get)
        for uid, bond in held.items()
    }

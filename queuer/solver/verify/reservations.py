"""The verifier's look at reservations: what is kept for a gang stays whole (DESIGN 3.4).

A reservation for a time to come is judged by what is free then. A hold, whose start has come as no end is known, keeps
what its place has and gets, whoever ends when.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from math import inf

from queuer.solver.problem import Assignment, Reservation
from queuer.solver.verify.case import Case, Rule, Violation
from queuer.solver.verify.landing import slots
from queuer.solver.verify.places import free_at, planned, unbound
from queuer.solver.verify.quota import Uses, amounts_at

Places = Mapping[str, Sequence[Assignment]]


def check_reservations(case: Case) -> Iterator[Violation]:
    """What starts now and does not end before a reservation leaves it whole, beside others that start no later; so does
    what is bound now, as nobody knows when that ends.
    """
    kept = [r for r in case.plan.reservations if r.uid not in case.started]
    timed = [r for r in kept if r.start > case.now]
    for reservation in timed:
        yield from _check_timed(case, reservation, timed)
    for hold in kept:
        if hold.start <= case.now:
            yield from _check_hold(case, hold)


def _check_timed(case: Case, reservation: Reservation, timed: Iterable[Reservation]) -> Iterator[Violation]:
    kept = planned(case, {reservation.uid: reservation.assignments})
    beside = planned(case, {r.uid: r.assignments for r in timed if r.start <= reservation.start})
    staying = {
        uid: rows
        for uid, rows in case.new.items()
        if uid != reservation.uid and (uid not in case.started or _ends(case, uid) > reservation.start)
    }
    ended = {
        a.workload.uid
        for a in case.snapshot.admitted
        if a.releasing or (a.expected_end is not None and a.expected_end <= reservation.start)
    }
    for name, resource, amount, have in _taken(case, staying, kept, ended | case.leaving):
        need = beside[name].get(resource, 0)
        if need <= have < need + amount:
            text = f"{name} keeps {need} {resource} by then, of {have}; {amount} more would stay"
            yield Violation(rule=Rule.RESERVATION, uid=reservation.uid, text=text)


def _check_hold(case: Case, hold: Reservation) -> Iterator[Violation]:
    """Nothing takes what a place that is held from now on has or lacks, except work that displaces its owner."""
    kept = planned(case, {hold.uid: hold.assignments})
    for name, resource, amount, have in _taken(case, _who_leaves_whole(case, hold), kept, case.leaving):
        need = kept[name][resource]
        if have < need + amount:
            text = f"{name} is held for it and has {have} of {need} {resource}; {amount} are taken there now"
            yield Violation(rule=Rule.RESERVATION, uid=hold.uid, text=text)


def _who_leaves_whole(case: Case, hold: Reservation) -> Places:
    """The places of those who found the hold there and do not displace its owner: that do who are entitled where it is
    not, and at equal entitlement those of higher priority. Who starts had room in its guarantee at the start of the
    cycle, if ever; the owner's rank is that of the same moment, beside all that is bound.

    One that is new in this cycle was there after its owner's turn, unless somebody after that displaced it: then it may
    have been found anew where others had started meanwhile. That one of them could is enough to judge nobody.
    """
    bonds, uses = {b.uid for b in case.snapshot.bonds}, case.uses()
    owner, standing = case.workload(hold.uid), hold in case.snapshot.reservations
    asks = amounts_at(owner, hold.assignments)
    # What one that is new was beside at its turn is not known.
    entitled = standing and bool(case.uses(bonds=bonds).entitled_on(owner.queue, asks))
    roomy = cache(partial(_has_room, uses))

    def displaces(uid: str) -> bool:
        one = case.workload(uid)
        could = bool(uses.entitled_on(*case.part(uid))) if uid in case.new else roomy(one.queue)
        return uid in bonds or (could, one.priority) > (entitled, owner.priority)

    if standing:
        return {uid: rows for uid, rows in case.new.items() if uid != hold.uid and not displaces(uid)}
    order = case.plan.order
    later = order[order.index(hold.uid) + 1 :] if hold.uid in order else ()
    places = {uid: case.new[uid] for uid in later if uid in case.new}
    return {} if not places or any(map(displaces, later)) else places


def _has_room(uses: Uses, queue: str) -> bool:
    """Whether any gang of the queue could be entitled anywhere on its path."""
    rows = uses.rows
    claims = rows.claimed(queue)
    return any(uses.used(at, k) < rows.guaranteed(at, k) for at in rows.path(queue) for k in claims)


def _taken(
    case: Case, places: Places, kept: Mapping[str, Mapping[str, int]], gone: Collection[str]
) -> Iterator[tuple[str, str, int, int]]:
    """Where these places take of what is kept: node, resource, the amount, and what is free there without them once
    `gone` have left and all pods that have still to land came there that can.
    """
    shared = planned(case, places, on=kept)
    if not shared:
        return
    free, present = free_at(case, shared, gone), free_at(case, shared)
    for group in unbound(case):
        for name in group.hosts & shared.keys() if group.uid not in gone else ():
            most = 1 if group.exclusive else group.count
            come = min(most, slots(present[name], group.requests))
            for resource, amount in group.requests.items():
                free[name][resource] = free[name].get(resource, 0) - come * amount
    for name, amounts in shared.items():
        for resource, amount in amounts.items():
            if amount and kept[name].get(resource, 0):
                yield name, resource, amount, free[name].get(resource, 0)


def _ends(case: Case, uid: str) -> float:
    workload = case.workload(uid)
    return case.now + min(
        (t for t in (workload.estimate, workload.max_runtime) if t is not None), default=inf
    )

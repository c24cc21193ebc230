"""The verifier's look at reservations: what is kept for a gang stays whole (DESIGN 3.4).

Only those are judged that were there before and stand: one for a time to come by what is free then; a hold, whose start
has come as no end is known, by what its place has and gets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf

from queuer.core.records import Reservation
from queuer.core.verify.case import Case, Rule, Violation, add
from queuer.core.verify.quota import Use, asks_of


def check_reservations(case: Case) -> Iterator[Violation]:
    """What is decided anew, would be there still, and does not displace the owner leaves its reservation whole."""
    old = {r.uid: (r.assignments, r.start) for r in case.snapshot.reservations}
    kept = [r for r in case.plan.reservations if old.get(r.uid) == (r.assignments, r.start)]
    after = Use(case.book, case.use).count(case.parts(case.rows)) if kept else case.use
    for reservation in kept:
        there = {name for row in reservation.assignments for name in row.nodes}
        near = {uid for name in there for uid, _, _ in case.on_node.get(name, ()) if uid in case.new}
        staying = {uid for uid in near - case.resumed.keys() if _outlives(case, uid, reservation.start)}
        taking = {
            uid for uid in staying if uid != reservation.uid and not _displaces(case, uid, reservation, after)
        }
        if taking:
            yield from _broken(case, reservation, taking)


def _outlives(case: Case, uid: str, time: float) -> bool:
    """Whether a gang that starts now is there still."""
    lasts = (case.workload(uid).estimate, case.workload(uid).max_runtime)
    return case.now + min((t for t in lasts if t is not None), default=inf) > time


def _displaces(case: Case, uid: str, reservation: Reservation, after: Use) -> bool:
    """Whether it is entitled and the owner is not, or its priority is higher. In doubt about the moment it is entitled,
    as before all turns, and the owner is not, as after them.
    """
    gang, owner = case.workload(uid), case.workload(reservation.uid)
    asks = asks_of(case.part(owner.uid, reservation.assignments))
    entitled, own = case.use.entitled(gang.queue, case.asks(uid)), after.entitled(owner.queue, asks)
    return (bool(entitled), gang.priority) > (bool(own), owner.priority)


def _broken(case: Case, reservation: Reservation, taking: Collection[str]) -> Iterator[Violation]:
    """Where these gangs take what the reservation needs on a node; of a hold also what that still lacks."""
    start, hold = reservation.start, reservation.start <= case.now
    ends = ((a.workload.uid, a.expected_end) for a in case.snapshot.admitted if not hold)
    gone = case.gone.union(uid for uid, end in ends if end is not None and end <= start)
    needs: dict[str, dict[str, int]] = {}
    for row, pod_set in case.pods(reservation.uid, reservation.assignments):
        for name, count in row.nodes.items():
            add(needs.setdefault(name, {}), pod_set.requests, count)
    pods = {name: [p for p in case.on_node.get(name, ()) if p[0] in taking] for name in needs}
    for name, room in case.room((name for name in needs if pods[name]), gone).items():
        taken: dict[str, int] = {}
        for _, pod_set, count in pods[name]:
            add(taken, pod_set.requests, count)
        for resource, amount in taken.items():
            need, have = needs[name].get(resource, 0), room.get(resource, 0)
            if need and amount and have < need + amount and (hold or need <= have):
                last = case.last(uid for uid, p, _ in pods[name] if p.requests.get(resource))
                text = f"{name} keeps {need} {resource} of {have} for {reservation.uid}, {amount} are taken"
                yield Violation(rule=Rule.RESERVATION, uid=last, text=text, at=name)

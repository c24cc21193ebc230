"""The verifier's look at reservations: what is kept for a gang stays whole.

Only standing reservations of earlier cycles are judged. One for a time to come is judged by the room at that
time. A hold, whose start has come, is judged by the room that its place has and gets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from queuer.domain.assignments import Reservation
from queuer.domain.quantity import Resources
from queuer.domain.workload import Workload
from queuer.solver.verify.case import Rule, VerifierCase, Violation
from queuer.solver.verify.quota import Use, asks_of


def check_reservations(case: VerifierCase) -> Iterator[Violation]:
    """A reservation stays whole beside new starts that would still be there and do not displace its owner."""
    old = {r.uid: (r.assignments, r.start) for r in case.snapshot.reservations}
    kept = [r for r in case.plan.reservations if old.get(r.uid) == (r.assignments, r.start)]
    after = Use(case.book, case.use).count(case.parts(case.rows if kept else ()))
    for reservation in kept:
        needs = case.sums(case.groups(reservation.uid, reservation.assignments, starts=False))
        taking = {
            uid
            for uid in case.new
            if uid != reservation.uid
            and any(not needs.keys().isdisjoint(group.nodes) for group in case.coming[uid])
            and _outlives(case.workload(uid), reservation.start - case.now)
            and not _displaces(case, uid, reservation, after)
        }
        if taking:
            yield from _broken(case, reservation, needs, taking)


def _outlives(gang: Workload, seconds: float) -> bool:
    return all(lasts is None or lasts > seconds for lasts in (gang.estimate, gang.max_runtime))


def _displaces(case: VerifierCase, uid: str, reservation: Reservation, after: Use) -> bool:
    """Whether it is entitled and the owner is not, or its priority is higher. In doubt about the moment it is entitled,
    as before all turns, and the owner is not, as after them.
    """
    gang, owner = case.workload(uid), case.workload(reservation.uid)
    asks = asks_of(case.part(owner.uid, reservation.assignments))
    entitled, own = case.use.entitled(gang.queue, case.asks(uid)), after.entitled(owner.queue, asks)
    return (bool(entitled), gang.priority) > (bool(own), owner.priority)


def _broken(
    case: VerifierCase, reservation: Reservation, needs: Mapping[str, Resources], taking: Collection[str]
) -> Iterator[Violation]:
    """Where these gangs take what the reservation needs on a node; of a hold also what that still lacks."""
    start, hold = reservation.start, reservation.start <= case.now
    ends = ((a.workload.uid, a.expected_end) for a in case.snapshot.admitted if not hold)
    gone = case.gone.union(uid for uid, end in ends if end is not None and end <= start)
    takes = case.sums(group for uid in taking for group in case.coming[uid])
    for name, room in case.room(needs.keys() & takes.keys(), gone).items():
        for resource, amount in takes[name].items():
            need, have = needs[name].get(resource, 0), room.get(resource, 0)
            if need and amount and have < need + amount and (hold or need <= have):
                text = f"{name} keeps {need} {resource} of {have} for {reservation.uid}, {amount} are taken"
                yield Violation(Rule.RESERVATION, case.last(name, resource, taking), text)

"""The verifier's look at reservations: what is kept for a gang stays whole (DESIGN 3.4).

A reservation for a time to come is judged by what is free then. A hold, whose start has come as no end is known, keeps
what its place has and gets. Only those are judged that were there before and stand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import inf

from queuer.core.records import Reservation
from queuer.core.verify.case import Case, Rule, Violation, add
from queuer.core.verify.quota import Use, asks_of
from queuer.domain.workload import Workload


def check_reservations(case: Case) -> Iterator[Violation]:
    """What is decided anew and does not displace the owner leaves its reservation whole: what starts, unless it ends
    before, and what is bound, as nobody knows when that ends.
    """
    old = {r.uid: (r.assignments, r.start) for r in case.snapshot.reservations}
    kept = [r for r in case.plan.reservations if r.uid not in case.new and old.get(r.uid) == (r.assignments, r.start)]
    for reservation in kept:
        needs = _needs(case, [reservation])
        taking = [uid for uid in _near(case, needs) if not _displaces(case, uid, reservation)]
        if reservation.start > case.now:
            taking = [u for u in taking if u in case.bound or _end(case.workload(u), case.now) > reservation.start]
            if taking:
                ended = {a.workload.uid for a in case.snapshot.admitted if a.expected_end is not None and a.expected_end <= reservation.start}
                beside = [r for r in kept if case.now < r.start <= reservation.start < _end(case.workload(r.uid), r.start)]
                yield from _taken(case, reservation, taking, _needs(case, beside), case.gone | ended)
        elif taking:
            yield from _taken(case, reservation, taking, needs, case.gone)

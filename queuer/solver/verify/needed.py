"""The verifier's look at what victims are for: nobody goes whom the gangs up to the beneficiary could do without.

Else a gang with the right to evict would make room for a later one that has none. Who lies where a later gang's victim
was has no use for quota either: that is short only because the node is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from queuer.solver.problem import Admitted, Assignment
from queuer.solver.verify.case import Case, Rule, Violation
from queuer.solver.verify.places import check_capacity, check_landing, free_at, planned
from queuer.solver.verify.quota import Key, Uses, amounts_of
from queuer.solver.verify.reservations import check_reservations

Places = Mapping[str, Sequence[Assignment]]
Taken = Mapping[str, Mapping[str, int]]
"""Amounts by node."""


def check_needed(case: Case) -> Iterator[Violation]:
    """By turns: the gangs so far, as they lie, with their victims gone, lack something where one of the last gang's
    stays.
    """
    victims: dict[str, list[str]] = {}
    for eviction in case.plan.evictions:
        victims.setdefault(eviction.beneficiary, []).append(eviction.uid)
    if not victims:
        return
    held = {uid: rows for uid, rows in case.bound.items() if uid not in case.new}
    gone = case.leaving.difference(*victims.values())
    uses = case.uses(without=gone, bonds=held)
    places, taken, asked = dict(held), planned(case, held), set[tuple[str, Key]]()
    for uid in case.in_turn:
        places[uid], (queue, amounts) = case.new[uid], case.part(uid)
        for name, row in planned(case, {uid: case.new[uid]}).items():
            there = taken.setdefault(name, {})
            for resource, amount in row.items():
                there[resource] = there.get(resource, 0) + amount
        asked |= {(path, key) for path in case.rows.path(queue) for key in amounts}
        uses.count(queue, amounts)
        mine = [case.running[v] for v in victims.get(uid, ())]
        gone |= {victim.workload.uid for victim in mine}
        for victim in mine:
            uses.count(victim.workload.queue, _charge(victim), times=-1)
        for victim in mine:
            needed = (
                _needs_room(case, taken, gone, victim)
                or (_needs_quota(uses, asked, victim) and _fits(case, taken, gone))
                or _needs_more(case, places, gone, victim)
            )
            if not needed:
                text = f"evicted for {uid}, which has its place and its quota without that"
                yield Violation(rule=Rule.VICTIM, uid=victim.workload.uid, text=text)


def _needs_room(case: Case, taken: Taken, gone: frozenset[str], victim: Admitted) -> bool:
    """Whether a node that bears what is taken is overdrawn if the victim stays."""
    free = free_at(case, victim.bound, gone)
    return any(
        0 <= free[name].get(resource, 0) - asked < victim.bound[name].get(resource, 0)
        for name in free.keys() & taken.keys()
        for resource, asked in taken[name].items()
        if asked
    )


def _fits(case: Case, taken: Taken, gone: frozenset[str]) -> bool:
    free = free_at(case, taken, gone)
    return all(
        free[name].get(resource, 0) >= asked
        for name in free
        for resource, asked in taken[name].items()
        if asked
    )


def _needs_quota(uses: Uses, asked: set[tuple[str, Key]], victim: Admitted) -> bool:
    """Whether a limit that these gangs keep, in what they ask for, is broken if the victim stays."""
    queue, charge = victim.workload.queue, _charge(victim)
    rows = [pair for path in uses.rows.path(queue) for key in charge if (pair := (path, key)) in asked]
    kept = [(path, key) for path, key in rows if not _broken(uses, path, key)]
    uses.count(queue, charge)
    missed = any(_broken(uses, path, key) for path, key in kept)
    uses.count(queue, charge, times=-1)
    return missed


def _broken(uses: Uses, path: str, key: Key) -> bool:
    limit = uses.rows.limit(path, key)
    return limit is not None and max(uses.used(path, key), uses.seen(path, key)) > limit


def _needs_more(case: Case, places: Places, gone: frozenset[str], victim: Admitted) -> bool:
    """Whether pods that have still to land, landing itself, or a reservation would suffer if the victim stays."""
    without = _complaints(case, places, gone - {victim.workload.uid})
    return not without <= _complaints(case, places, gone)


def _complaints(case: Case, places: Places, gone: frozenset[str]) -> set[Violation]:
    """What is wrong with the plan cut down to these gangs and victims."""
    part = replace(
        case.plan,
        admissions=tuple(a for a in case.plan.admissions if a.uid in places),
        bonds=tuple(b for b in case.plan.bonds if b.uid in places),
        evictions=tuple(e for e in case.plan.evictions if e.uid in gone),
    )
    cut = Case(case.snapshot, part, case.now)
    return {v for check in (check_capacity, check_landing, check_reservations) for v in check(cut)}


def _charge(victim: Admitted) -> Mapping[Key, int]:
    return amounts_of(victim.workload, victim.counts, victim.flavors)

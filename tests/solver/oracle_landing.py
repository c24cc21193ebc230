"""A plan beside the tournament of `oracle`, turn by turn, and brute force of landing (DESIGN 3.5): whether gangs lie
beside each other in any way in which all land, as the verifier sees it.

Every arrangement is looked at, each gang pinned to the hosts of its place, those that spread over several hosts in
every order of waves. Wider pins are not tried: what lands here lands, but not the reverse. So a plan may give a gang
less than the tournament only where nothing lands here; what it gives was found to land by the verifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.problem import Assignment, Bond, Eviction, EvictionRule, Plan, Snapshot
from queuer.solver.score import eviction_cost, live_capacity
from queuer.solver.verify.case import Case
from queuer.solver.verify.places import check_landing
from tests.solver.oracle import BOUND, STARTED, WAITING, Oracle
from tests.solver.oracle_room import Free, Place, Room, Turn, add, place_of, taken
from tests.solver.oracle_victims import Cost
from tests.solver.plans import plan

MOST = 3_000
"""Arrangements looked at for one question, after which nothing is said."""
Layout = Mapping[str, Place]
"""Places by uid."""


class Following(Oracle):
    """The tournament as a plan plays it. Raises AssertionError at the first turn in which that differs from what is
    owed. Who could start if it landed may be put off; who is bound at its turn may start in the end, as there is what
    victims of later gangs leave; who evicts may have later flavors if that costs less, or if the plan starts more in
    the end than the tournament does: one that scores less is never taken. `judged`: whether nothing was left open;
    `deferred`: who waits for an answer of the exact solver and could be placed.
    """

    def __init__(self, snapshot: Snapshot, now: float, plan: Plan) -> None:
        held = {b.uid: place_of(b.assignments) for b in snapshot.bonds}
        starts = {a.uid: a.assignments for a in plan.admissions}
        moved = {uid for uid in held.keys() & starts.keys() if place_of(starts[uid]) != held[uid]}
        super().__init__(snapshot, now, elsewhere=moved)
        self.judged = True
        self.deferred: list[str] = []
        self._waiting = plan.explanations
        self._held_at = held
        self._evictions = plan.evictions
        self._raised: list[str] = []
        self._told = {b.uid: (True, _flavors(b.assignments)) for b in plan.bonds}
        self._told |= {uid: (False, _flavors(rows)) for uid, rows in starts.items()}

    def run(self) -> None:
        super().run()
        told = {uid: self._told[uid][0] for uid in self.flags if uid in self._told}
        assert {uid: flag == BOUND for uid, flag in self.flags.items() if flag} == told
        self._judge_cost()

    def _start(self, uid: str) -> None:
        before = self.held
        super()._start(uid)
        if self.flags[uid] != STARTED:
            return
        assert uid in self._told, f"{uid} is bound and could start, and neither is so any more"
        if self._told[uid][0]:
            assert not self._land(self.settled, ()), f"{uid} is bound and could start"
            self.settled.pop()
            self.held, self.flags[uid] = before, BOUND
            self.lying.pop(uid, None)

    def _turn(self, workload: Workload) -> int:
        uid, put_off, cheaper = workload.uid, False, None
        told = self._told.get(uid)
        for bound in (False, True):
            if bound and told is None and put_off:
                break
            for flavors in self.flavor_choices(workload):
                turn = self.turn_of(workload, flavors, bound=bound)
                gone = self.possible(turn)
                if (bound, flavors) == told:
                    gone = self._dearer(turn) if gone is None else gone
                raised = bound and (False, flavors) == told
                if gone is not None and (raised or (bound, flavors) == told):
                    dearer = cheaper is not None and self._price(turn, gone) >= cheaper
                    assert not dearer or self._instead(), f"{uid} on {flavors}"
                    self.settled.append(turn)
                    self.gone = gone
                    self._raised += [uid] * raised
                    return BOUND if bound and not raised else STARTED
                if gone is not None and self._is_owed(turn, gone):
                    if self._is_deferred(uid):
                        self.deferred.append(uid)
                        return WAITING
                    later = told is not None and told[0] and bound  # flavors later in the order
                    assert later, f"{uid} could {'be bound' if bound else 'start'} on {flavors}"
                    cheaper = self._price(turn, gone)
                put_off |= gone is not None
        assert told is None, f"{uid} gets what it cannot get"
        return WAITING

    def _is_deferred(self, uid: str) -> bool:
        told = self._waiting.get(uid)
        return told is not None and told.primary.token is Token.SOLVER_DEFERRED

    def _instead(self) -> bool:
        """Whether this plan counts because it starts more than the tournament, for want of an answer."""
        return any(map(self._is_deferred, self._waiting)) and self._starts_more()

    def _starts_more(self) -> bool:
        owed = Oracle(self.snapshot, self.now)
        owed.run()
        told = [
            WAITING if uid not in self._told else BOUND if self._told[uid][0] else STARTED
            for uid in owed.order
        ]
        return told > [owed.flags[uid] for uid in owed.order]

    def _price(self, turn: Turn, gone: Sequence[str]) -> Cost:
        return self.costs([*self.settled, turn])[frozenset(gone)]

    def _dearer(self, turn: Turn) -> tuple[str, ...] | None:
        """Victims with which the gang has what the least costly ones of those before it leave no room for."""
        may = self.allowed(turn) and (turn.bound or self.has_quota(turn))
        return self.least([*self.settled, turn]) if may else None

    def _is_owed(self, turn: Turn, gone: tuple[str, ...]) -> bool:
        everyone = [*self.settled, turn]
        free = turn.bound and self._anybody(turn.workload)
        sets = self.victim_sets(everyone) if free else [gone]
        return any(self.arranged(everyone, some) and self._land(everyone, some) for some in sets)

    def _judge_cost(self) -> None:
        """Dearer than need be are only victims without whom not all land."""
        gone = [(self.admitted[e.uid], e.rule) for e in self._evictions]
        capacity = live_capacity(self.snapshot.nodes, self.snapshot.flavors)
        everyone = [replace(t, bound=t.bound and t.workload.uid not in self._raised) for t in self.settled]
        cost, prices = eviction_cost(gone, capacity=capacity, now=self.now), self.costs(everyone)
        self.dearest = cost
        for some in self.victim_sets(everyone):
            price = prices[frozenset(some)]
            if price >= cost:
                break
            cheaper = self.arranged(everyone, some) and self._land(everyone, some)
            assert not cheaper, f"{', '.join(some)} would be enough: {price}, not {cost}"
        self.dearest = None
        least = self.least(everyone)
        assert least is not None
        assert prices[frozenset(least)] <= cost

    # Landing

    def _land(self, everyone: Sequence[Turn], gone: Sequence[str]) -> bool:
        """Whether it is known that all of these land in some arrangement."""
        found = self.ever_lands(everyone, gone)
        self.judged &= found is not None
        return bool(found)

    def ever_lands(self, everyone: Sequence[Turn], gone: Sequence[str]) -> bool | None:
        """Whether these have an arrangement with these victims in which all land. None = there are too many."""
        for seen, layout in enumerate(self._layouts(everyone, {}, self.free_now(), self.free_later(gone))):
            rows = {t.workload.uid: taken(t.workload, layout[t.workload.uid]) for t in everyone}
            if self.all_needed(everyone, rows, gone) and all_land(self, everyone, layout, gone):
                return True
            if seen == MOST:
                return None
        return False

    def _layouts(self, everyone: Sequence[Turn], done: Layout, now: Free, later: Free) -> Iterator[Layout]:
        if len(done) == len(everyone):
            yield done
            return
        turn = everyone[len(done)]
        sheets = [later] if turn.bound else [now, later]
        fixed = self._held_at[turn.workload.uid] if turn.workload.uid in self.lying else None
        for scope in self._scopes(turn):
            for place in list(_places(turn, scope, sheets, {}, 0)):
                if fixed is not None and fixed != place:
                    continue
                rows = taken(turn.workload, place)
                for sheet in sheets:
                    add(sheet, rows, times=-1)
                yield from self._layouts(everyone, {**done, turn.workload.uid: place}, now, later)
                for sheet in sheets:
                    add(sheet, rows)


def all_land(room: Room, everyone: Sequence[Turn], layout: Layout, gone: Sequence[str]) -> bool:
    """Whether all land in some order where they lie, each pinned to its hosts, and leave whole what is held for those
    that are bound.
    """
    rows = {turn.workload.uid: _pinned(turn, layout[turn.workload.uid]) for turn in everyone}
    starts = {turn.workload.uid: rows[turn.workload.uid] for turn in everyone if not turn.bound}
    bound = [turn.workload.uid for turn in everyone if turn.bound]
    bonds = [Bond(uid=uid, assignments=rows[uid], victims=tuple(gone), deadline=room.now) for uid in bound]
    bonds += [bond for bond in room.snapshot.bonds if bond.uid in room.held]
    evictions = [Eviction(uid=v, beneficiary=bound[0], rule=EvictionRule.PREEMPT) for v in gone]
    spread = [uid for uid, own in starts.items() if any(len(row.nodes) > 1 for row in own)]
    for order in permutations(spread):
        waves = {uid: number for number, uid in enumerate(order, 1)}
        made = plan(room.snapshot, starts, bonds=tuple(bonds), evictions=tuple(evictions), waves=waves)
        if next(check_landing(Case(room.snapshot, made, room.now)), None) is None:
            return True
    return False


def _places(
    turn: Turn, scope: Mapping[str, Sequence[str]], sheets: Sequence[Free], done: Place, first: int
) -> Iterator[Place]:
    """Every place on what is free, pod after pod."""
    short = (p for p in turn.workload.pod_sets if sum(done.get(p.name, {}).values()) < p.count)
    if (pod_set := next(short, None)) is None:
        yield done
        return
    mine = done.get(pod_set.name, {})
    for i, node in enumerate(scope[pod_set.name]):
        room = all(f[node].get(r, 0) >= n for f in sheets for r, n in pod_set.requests.items() if n)
        if (mine and i < first) or not room:
            continue
        for sheet in sheets:
            add(sheet, {node: pod_set.requests}, times=-1)
        more = {**done, pod_set.name: {**mine, node: mine.get(node, 0) + 1}}
        yield from _places(turn, scope, sheets, more, i + pod_set.exclusive_host)
        for sheet in sheets:
            add(sheet, {node: pod_set.requests})


def _flavors(rows: Iterable[Assignment]) -> dict[str, str]:
    return {row.pod_set: row.flavor for row in rows}


def _pinned(turn: Turn, place: Place) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(pod_set=name, flavor=turn.flavors[name], nodes=nodes, hosts=tuple(sorted(nodes)))
        for name, nodes in place.items()
    )

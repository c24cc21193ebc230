"""The cheapest set of permitted victims that is enough for a gang, and for those of its leaf that want room like it.

A simple order finds a set for each gang alone: the least lost work for each slot, until there is room, thinned once.
CP-SAT then chooses for all of them together, and is bounded by that. Without it the simple order is the answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from math import inf

from queuer.domain.assignments import Eviction, EvictionRule
from queuer.solver.candidates import Candidates, Footprints, Seeker
from queuer.solver.clearing import Clearing, Ground
from queuer.solver.cpsat import CpSat
from queuer.solver.nodes import Numbers, fits
from queuer.solver.placement import Spreads, place
from queuer.solver.rights import Cost, GangRights, Rights
from queuer.solver.slots import View
from queuer.solver.state import Settled, State
from queuer.solver.victim_model import CLOSE, VictimModel

TOGETHER = 8
"""Gangs of one leaf for which victims are chosen together."""
GROUNDS = 3
"""Domains in which the simple order is tried, unless it finds nothing there."""
TRIED_BACK = 32
"""Victims that are tried back where all nodes are looked at, the dearest.
"""
CUTS = 3
"""Answers of CP-SAT that may turn out to be no set."""


class Victims:
    """Looks for them in one decision. `rights`: of all gangs; `searches`: how often, and of these `proved` to be the
    cheapest on the nodes that were looked at; `planned`: gangs for whom victims were chosen before their turn, by uid;
    `without`: gangs for whom all are too few.
    """

    def __init__(self, state: State, solver: CpSat) -> None:
        self._state, self._solver, self.rights = state, solver, Rights(state)
        self.without: set[object] = set()
        self.planned: dict[str, tuple[Settled, Candidates]] = {}
        self.searches = self.proved = 0

    @cached_property
    def _footprints(self) -> Footprints:
        return Footprints(self._state)

    def bound(self, seeker: Seeker, behind: Iterator[Seeker]) -> Settled | None:
        """The gang bound to the room of work that leaves already, else to the room of the cheapest victims found. None
        = it may evict nobody, or no set was found. The evictions are in an order in which each is permitted. `behind`:
        gangs that come after it in its leaf.
        """
        state, (gang, variant, charge, parts) = self._state, seeker
        if not parts or not gang.may_take(charge, state.claimed):
            return None
        owned, respected = self.rights.of(gang, charge), state.respected(gang, charge)
        planned = self.planned.pop(gang.uid, None)
        if planned is not None and self._stands(*planned, owned):
            return planned[0]
        sizes = (tuple(variant.counts.values()), tuple(variant.flavors.values()))
        key = (gang.queue, gang.shape.placement_key, gang.pending.avoid, sizes, owned, respected)
        if key in self.without or not self.rights.anybody(owned):
            return None
        room = state.room(respected, View.LATER)
        spreads = place(room, gang.workload, parts, closed=state.closed(gang, bound=True))
        if spreads is not None and state.used_later.fits(gang.queue, charge):
            return bound_to(seeker, spreads) if state.leaving else None
        clearing = Clearing(self._candidates(seeker), seeker)
        if not clearing.could_fit():
            self.without.add(key)
            return None
        self.searches += 1
        return self._cheapest(clearing, behind)

    def _stands(self, planned: Settled, there: Candidates, owned: GangRights) -> bool:
        """Whether what was chosen before its turn is still right."""
        state, mark, evictions = self._state, self._state.mark, planned.evictions
        if (there.owned, there.respected) != (owned, state.respected(planned.gang, planned.charge)):
            return False
        closed = state.closed(planned.gang, bound=True)
        if closed is not None and closed[list(planned.hosts)].any():
            return False
        if not state.leaving.keys().isdisjoint(e.uid for e in evictions):
            return False
        gone = there.victims(planned)
        if there.rules(gone) != [e.rule for e in evictions] or not there.fits(gone, planned.charge):
            return False
        for eviction in evictions:
            state.leave(eviction.uid)
        stands = fits(state.room(there.respected, View.LATER).free, state.rows(planned))
        state.undo(mark)
        return stands

    def _cheapest(self, first: Clearing, behind: Iterator[Seeker]) -> Settled | None:
        """The first bound to the room of its victims; those of the others are `planned`. Gangs between them that start
        all the same do so.
        """
        state, mark, solver = self._state, self._state.mark, self._solver
        there, before = first.there, frozenset(state.settled)
        clearings, known, sure = list[Clearing](), list[Settled](), True
        for seeker in chain([first.seeker], behind):
            here = Clearing(self._candidates(seeker), seeker) if known else first
            settled = self._alone(here) if not known or here.there.same_as(there.now()) else None
            if settled is not None:
                clearings.append(here)
                known.append(settled)
                sure = (
                    self._needs_no_proof(here, settled) if here is first else sure and not settled.evictions
                )
                state.bind(settled)
            if not known or len(known) == TOGETHER or not solver.left > 0:
                break
        starts = [s for uid, s in state.settled.items() if uid not in before and not s.bound]
        state.undo(mark)
        answer, proved = known, bool(known) and sure
        clearings = clearings or [first]
        if solver.left > 0 and not proved:
            if len(known) > 1:
                for start in starts:
                    state.start(start)
            answer, proved = self._by_model(clearings, known)
            state.undo(mark)
        self.proved += proved
        for settled, clearing in zip(answer[1:], clearings[1:], strict=bool(answer)):
            self.planned[settled.gang.uid] = (
                with_losses(settled, clearing.there, proved=proved),
                clearing.there,
            )
        if not answer:
            return None
        others = [there.victims(known[0])] if known else []
        others.append(next_best(first, there.victims(answer[0])))
        return with_losses(answer[0], there, *others, proved=proved)

    def _candidates(self, seeker: Seeker) -> Candidates:
        return Candidates(self._state, self.rights, self._footprints, seeker)

    def _alone(self, clearing: Clearing) -> Settled | None:
        """The gang bound to the room of the cheapest set that the simple order finds."""
        if not clearing.limited and clearing.spreads is not None:
            return bound_to(clearing.seeker, clearing.spreads)
        there, best, found = clearing.there, list[int](), 0
        least, cost = inf, Cost()
        for ground in clearing.grounds():
            if found == GROUNDS or ground.estimate > least * CLOSE:
                break
            clearing.tried.append(ground)
            if gone := simple_order(clearing, ground):
                found, rules = found + 1, there.rules(gone)
                dearer = rules is None or (best and there.cost(gone, rules) >= cost)
                if rules is not None and not dearer:
                    best, cost = gone, there.cost(gone, rules)
                    least = float(there.weights[gone].sum())
        return self._settled(there, clearing.seeker, best) if best else None

    def _needs_no_proof(self, clearing: Clearing, settled: Settled) -> bool:
        """Whether one victim is enough, and all that are no dearer are too few without it."""
        there, seeker = clearing.there, clearing.seeker
        if len(settled.evictions) > 1:
            return False
        victim = there.number(settled.evictions[0].uid)
        others = there.numbers[there.weights[there.numbers] <= there.weights[victim] * CLOSE]
        rest = others[others != victim].tolist()
        return not there.fits(rest, seeker.charge) or there.placed(seeker, rest) is None

    def _settled(
        self, there: Candidates, seeker: Seeker, gone: Sequence[int], nodes: Numbers | None = None
    ) -> Settled | None:
        """The gang bound once these have gone, in an order in which they may; the dearest are tried back. `nodes`:
        where it lies.
        """

        def enough(some: Sequence[int]) -> Spreads | None:
            fits = there.rules(some) is not None and there.fits(some, seeker.charge)
            return there.placed(seeker, some, nodes) if fits else None

        spreads = enough(gone)
        dearest = sorted(gone, key=lambda n: float(there.weights[n]), reverse=True)
        for number in dearest[:TRIED_BACK]:
            rest = [n for n in gone if n != number]
            if spreads is not None and rest and (fewer := enough(rest)) is not None:
                gone, spreads = rest, fewer
        rules = there.rules(gone)
        if spreads is None or rules is None:
            return None
        evictions = (
            Eviction(uid=there.uid(n), beneficiary=seeker.gang.uid, rule=rule)
            for n, rule in zip(gone, rules, strict=True)
        )
        return bound_to(seeker, spreads, *evictions)

    def _by_model(self, clearings: Sequence[Clearing], known: list[Settled]) -> tuple[list[Settled], bool]:
        """The gangs bound one after the other as CP-SAT has it, or as it is known; whether that is proved."""
        try:
            there = clearings[0].there
            together = (
                [Clearing(there, c.seeker, c.tried) for c in clearings] if len(known) > 1 else clearings
            )
            model = VictimModel(there, together, known)
        except OverflowError:
            return known, False
        for _ in range(CUTS):
            answer = model.solve(self._solver)
            if answer is None:
                break
            gone, places, proven = answer
            if found := self._carried(clearings, gone, places):
                self._solver.heard(proven=proven)
                return found, proven
            model.cut(gone)
        self._solver.heard(proven=False)
        return known, False

    def _carried(
        self, clearings: Sequence[Clearing], gone: Sequence[int], places: Sequence[Numbers]
    ) -> list[Settled]:
        """Each gang in its place, with those of the gone that it needs; none: that cannot be."""
        state, mark, found, there = self._state, self._state.mark, list[Settled](), clearings[0].there
        preempted = [there.group(n)[1] is EvictionRule.PREEMPT for n in gone]
        left = [n for *_, n in sorted(zip(preempted, there.footprints.share[gone], gone, strict=True))]
        for clearing, nodes in zip(clearings, places, strict=True):
            seeker, there = clearing.seeker, clearing.there
            near = left if not there.fits((), seeker.charge) else [n for n in left if there.lies(n, nodes)]
            settled = self._settled(there, seeker, near, nodes if len(clearings) > 1 else None)
            if settled is None:
                found = []
                break
            found.append(settled)
            state.bind(settled)
            left = [n for n in left if there.uid(n) not in state.leaving]
        state.undo(mark)
        return found


def simple_order(clearing: Clearing, ground: Ground, spared: int | None = None) -> list[int]:
    """Candidates that go until there is room on the ground and limits bear the gang, those first whose going frees
    quota that is short. Where no such prefix is enough the smallest go first: the last may cross the line.
    """
    there, inside = clearing.there, set(ground.order)
    line = [*sorted(clearing.helpers, key=lambda n: n not in inside), *ground.order]
    line = [n for n in line if n != spared]
    for order in (
        dict.fromkeys(line),
        sorted(set(line), key=lambda n: (float(there.footprints.share[n]), n)),
    ):
        gone, look, least = list[int](), 1, 1
        for number in there.permitted(order):
            gone.append(number)
            if len(gone) == look:
                if clearing.enough(gone, ground):
                    break
                least, look = look + 1, look * 2
        else:
            if not clearing.enough(gone, ground):
                continue
        most = bisect_left(range(least, len(gone)), True, key=lambda n: clearing.enough(gone[:n], ground))
        gone = gone[: least + most]
        for number in sorted(gone, key=lambda n: float(there.weights[n]), reverse=True):
            rest = [n for n in gone if n != number]
            if rest and clearing.enough(rest, ground) and there.rules(rest) is not None:
                gone = rest
        return gone
    return []


def next_best(clearing: Clearing, gone: Sequence[int]) -> list[int]:
    """The simple order's set without the dearest of these, on the first of the cheapest grounds that has one."""
    dearest = max(gone, key=lambda n: float(clearing.there.weights[n]), default=None)
    sets = (simple_order(clearing, ground, dearest) for ground in islice(clearing.grounds(), GROUNDS))
    return next(filter(None, sets), [])


def with_losses(settled: Settled, there: Candidates, *others: Sequence[int], proved: bool) -> Settled:
    """The same with the work that its evictions lose. `others`: sets that make room, too, where they are not empty."""
    gone = there.victims(settled)
    found = [other for other in others if other and not set(other) >= set(gone)]
    cheapest = min(found, key=lambda other: float(there.weights[list(other)].sum()), default=())
    lost = there.lost_by(gone, cheapest, proved=proved)
    told = (replace(e, lost=row) for e, row in zip(settled.evictions, lost, strict=True))
    return replace(settled, evictions=tuple(told))


def bound_to(seeker: Seeker, spreads: Spreads, *evictions: Eviction) -> Settled:
    """The gang bound to this place."""
    gang, variant, charge, _ = seeker
    return Settled(
        gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=evictions, bound=True
    )

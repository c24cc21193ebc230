"""The cheapest set of permitted victims that is enough for a gang, and for those of its leaf that want room like it.

A simple order finds a set for each gang alone: the least lost work for each slot, until there is room, thinned once.
CP-SAT then chooses for all of them together, and is bounded by that. Without it the simple order is the answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf

from queuer.domain.assignments import Eviction, EvictionRule
from queuer.solver.candidates import Candidates, Footprints, Seeker
from queuer.solver.clearing import Clearing, Ground
from queuer.solver.cpsat import CpSat
from queuer.solver.nodes import Numbers
from queuer.solver.placement import Spreads, place
from queuer.solver.rights import Cost, Rights
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
    cheapest on the nodes that were looked at; `without`: gangs for whom all are too few.
    """

    def __init__(self, state: State, solver: CpSat) -> None:
        self._state, self._solver, self.rights = state, solver, Rights(state)
        self.without: set[object] = set()
        self.searches = self.proved = 0

    @cached_property
    def _footprints(self) -> Footprints:
        return Footprints(self._state)

    def bound(self, seeker: Seeker, behind: Iterable[Seeker]) -> Settled | None:
        """The gang bound to the room of work that leaves already, else to the room of the cheapest victims found. None
        = it may evict nobody, or no set was found. The evictions are in an order in which each is permitted. `behind`:
        gangs that come after it in its leaf.
        """
        state, (gang, variant, charge, parts) = self._state, seeker
        if not parts or not gang.may_take(charge, state.claimed):
            return None
        owned, respected = self.rights.of(gang, charge), state.respected(gang, charge)
        sizes = (tuple(variant.counts.values()), tuple(variant.flavors.values()))
        key = (gang.queue, gang.shape.placement_key, gang.pending.avoid, sizes, owned, respected)
        if key in self.without or not self.rights.anybody(owned):
            return None
        room = state.room(respected, View.LATER)
        spreads = place(room, gang.workload, parts, closed=state.closed(gang, bound=True))
        if spreads is not None and state.used_later.fits(gang.queue, charge) and not state.leaving:
            return None
        clearing = Clearing(Candidates(state, self.rights, self._footprints, seeker), seeker)
        if not clearing.could_fit():
            self.without.add(key)
            return None
        self.searches += 1
        return self._cheapest(clearing, behind)

    def _cheapest(self, first: Clearing, behind: Iterable[Seeker]) -> Settled | None:
        """The gang bound to the room of its victims, chosen together with those of the gangs behind it."""
        known, asked = self._alone(first), self._solver.left > 0
        later = self._behind(first, known, behind) if known is not None and asked else []
        alone = known is not None and not any(settled.evictions for _, settled in later)
        if known is not None and alone and self._needs_no_proof(first, known):
            self.proved += 1
            return known
        if not asked:
            return known
        clearings = [first, *(Clearing(first.there, seeker) for seeker, _ in later)]
        line = [] if known is None else [known, *(settled for _, settled in later)]
        return self._by_model(clearings, line) or known

    def _behind(
        self, first: Clearing, known: Settled, behind: Iterable[Seeker]
    ) -> list[tuple[Seeker, Settled]]:
        """Gangs behind it with the same rights, bound one after the other once it is."""
        state, mark, there = self._state, self._state.mark, first.there
        found = list[tuple[Seeker, Settled]]()
        state.bind(known)
        for seeker in behind:
            clearing = Clearing(there.now(), seeker) if there.serves(seeker) else None
            settled = None if clearing is None else self._alone(clearing)
            if settled is not None:
                state.bind(settled)
                found.append((seeker, settled))
            if len(found) == TOGETHER - 1:
                break
        state.undo(mark)
        return found

    def _alone(self, clearing: Clearing) -> Settled | None:
        """The gang bound to the room of the cheapest set that the simple order finds."""
        if not clearing.limited and clearing.spreads is not None:
            return bound_to(clearing.seeker, clearing.spreads)
        there, best, found = clearing.there, list[int](), 0
        least, cost = inf, Cost()
        for ground in clearing.grounds():
            if found == GROUNDS or ground.estimate > least * CLOSE:
                break
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
        if len(settled.evictions) != 1:
            return not settled.evictions
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
        rows = zip(gone, rules, there.lost_by(gone, rules), strict=True)
        evictions = (
            Eviction(uid=there.uid(n), beneficiary=seeker.gang.uid, rule=rule, lost=lost)
            for n, rule, lost in rows
        )
        return bound_to(seeker, spreads, *evictions)

    def _by_model(self, clearings: Sequence[Clearing], known: Sequence[Settled]) -> Settled | None:
        """The first of these gangs bound as CP-SAT has it for all of them together. None = no answer, or no set."""
        first = clearings[0]
        there, seeker = first.there, first.seeker
        try:
            model = VictimModel(there, clearings, known)
        except OverflowError:
            return None
        for _ in range(CUTS):
            answer = model.solve(self._solver)
            if answer is None:
                break
            gone, nodes, proven = answer
            preempted = [there.group(n)[1] is EvictionRule.PREEMPT for n in gone]
            gone = [n for *_, n in sorted(zip(preempted, there.footprints.share[gone], gone, strict=True))]
            near = gone if first.limited else [n for n in gone if there.lies(n, nodes)]
            settled = self._settled(there, seeker, near, nodes if len(clearings) > 1 else None)
            if settled is not None:
                self._solver.heard(proven=proven)
                self.proved += proven
                return settled
            model.cut(gone)
        self._solver.heard(proven=False)
        return None


def simple_order(clearing: Clearing, ground: Ground) -> list[int]:
    """Candidates that go until there is room on the ground and limits bear the gang, those first whose going frees
    quota that is short. Where no such prefix is enough the smallest go first: the last may cross the line.
    """
    there, inside = clearing.there, set(ground.order)
    line = [*sorted(clearing.helpers, key=lambda n: n not in inside), *ground.order]
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


def bound_to(seeker: Seeker, spreads: Spreads, *evictions: Eviction) -> Settled:
    """The gang bound to this place."""
    gang, variant, charge, _ = seeker
    return Settled(
        gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=evictions, bound=True
    )

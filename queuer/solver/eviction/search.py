"""The search for victims, at a gang's turn: the cheapest set that makes room for it and for the gangs behind it.

The simple order finds a set for each gang alone. CP-SAT then chooses for all of them together, bounded by these. Only
the first gang is bound. The others are chosen for anew in the cycles that follow at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from queuer.domain.assignments import Eviction
from queuer.solver.cpsat import CpSat
from queuer.solver.eviction.candidates import Candidates, Footprints, Seeker
from queuer.solver.eviction.grounds import Clearing
from queuer.solver.eviction.lost_work import losses
from queuer.solver.eviction.model import VictimModel
from queuer.solver.eviction.rights import Rights
from queuer.solver.eviction.simple_order import cheapest_set, next_best, thinned
from queuer.solver.nodes import Numbers
from queuer.solver.placement import Spreads, place
from queuer.solver.slots import View
from queuer.solver.state import Settled, State

TOGETHER = 5
"""Gangs of one leaf for which victims are chosen together: with more, fewer sets are proved in the time there is."""
CLOSE = 1 + 1e-9
"""Weights that are this close may be the same."""
FAILED = 2
"""Gangs behind for which no victims are found, after which no more are asked."""
CUTS = 3
"""Answers of CP-SAT that may turn out to be no set."""


class Victims:
    """The searches of one decision. `rights`: of all gangs. `searches`: their number; `proved`: how many found a set
    that is the cheapest on the nodes looked at. `without`: gangs for which all candidates are too few.
    """

    def __init__(self, state: State, solver: CpSat) -> None:
        self._state, self._solver, self.rights = state, solver, Rights(state)
        self.without: set[object] = set()
        self.searches = self.proved = 0

    @cached_property
    def _footprints(self) -> Footprints:
        return Footprints(self._state)

    def bound(self, seeker: Seeker, behind: Iterable[Seeker]) -> Settled | None:
        """The gang bound to the room of its victims, or of jobs that leave already; None = it may evict nobody, or no
        set was found. Evictions are in an order in which each is permitted. `behind`: gangs after it in its leaf.
        """
        state, (gang, variant, charge, parts) = self._state, seeker
        if not parts or not gang.may_take(charge, state.claimed):
            return None
        rights, respected = self.rights.of(gang, charge), state.respected(gang, charge)
        sizes = (tuple(variant.counts.values()), tuple(variant.flavors.values()))
        key = (gang.queue, gang.shape.placement_key, gang.pending.avoid, sizes, rights, respected)
        if key in self.without or not self.rights.anybody(rights):
            return None
        if not state.leaving and state.used_later.fits(gang.queue, charge):
            room, closed = state.room(respected, View.LATER), state.closed(gang, bound=True)
            if place(room, gang.workload, parts, closed=closed) is not None:
                return None  # the landing rule is in its way, no job
        clearing = Clearing(Candidates(state, self.rights, self._footprints, seeker), seeker)
        if not clearing.could_fit():
            self.without.add(key)
            return None
        self.searches += 1
        return self._chosen(clearing, behind)

    def _chosen(self, first: Clearing, behind: Iterable[Seeker]) -> Settled | None:
        candidates, asked = first.candidates, self._solver.left > 0
        simple = self._by_simple_order(first)
        line = [] if simple is None else [(first.seeker, simple)]
        if simple is not None and asked:
            line += self._in_line(candidates, simple, behind)
        alone = not any(settled.evictions for _, settled in line[1:])
        if simple is not None and alone and self._needs_no_proof(first, simple):
            return self._told(first, simple, simple, proved=True)
        if not asked:
            return None if simple is None else self._told(first, simple, simple)
        clearings = [first, *(Clearing(candidates, seeker) for seeker, _ in line[1:])]
        answer, proved = self._by_model(clearings, [settled for _, settled in line])
        if answer is not None:
            return self._told(first, answer, simple, proved=proved, jobs=len(clearings))
        return None if simple is None else self._told(first, simple, simple)

    def _in_line(
        self, candidates: Candidates, first: Settled, behind: Iterable[Seeker]
    ) -> list[tuple[Seeker, Settled]]:
        """Gangs behind the first with its rights, each as the simple order binds it after those before it."""
        state, mark, found, failed = self._state, self._state.mark, list[tuple[Seeker, Settled]](), 0
        state.bind(first)
        for seeker in behind:
            if len(found) == TOGETHER - 1 or failed == FAILED:
                break
            if candidates.same_rights(seeker):
                settled = self._by_simple_order(Clearing(candidates.without_leaving(), seeker))
                failed += settled is None
                if settled is not None:
                    state.bind(settled)
                    found.append((seeker, settled))
        state.undo(mark)
        return found

    def _by_simple_order(self, clearing: Clearing) -> Settled | None:
        if not clearing.limited and clearing.spreads is not None:
            return bound_to(clearing.seeker, clearing.spreads)
        gone = cheapest_set(clearing)
        return self._settled(clearing, gone) if gone else None

    def _needs_no_proof(self, clearing: Clearing, settled: Settled) -> bool:
        """Whether nobody goes, or one victim is enough and all that are no dearer are too few without it."""
        candidates, seeker = clearing.candidates, clearing.seeker
        if len(settled.evictions) != 1:
            return not settled.evictions
        (victim,) = candidates.victims(settled)
        weights = candidates.weights[candidates.numbers]
        others = candidates.numbers[weights <= candidates.weights[victim] * CLOSE]
        rest = others[others != victim].tolist()
        return not candidates.fits(rest, seeker.charge) or candidates.placed(seeker, rest) is None

    def _by_model(
        self, clearings: Sequence[Clearing], known: Sequence[Settled]
    ) -> tuple[Settled | None, bool]:
        """The first gang bound as CP-SAT has it for all of them, and whether that is proved; None = it found no set."""
        first, candidates = clearings[0], clearings[0].candidates
        try:
            model = VictimModel(candidates, clearings, known)
        except OverflowError:
            return None, False
        for cuts in range(CUTS):
            answer = model.solve(self._solver)
            if answer is None:
                break
            gone, nodes, proven = answer
            near = gone if first.limited else candidates.near(gone, nodes)
            near = next((order for order in candidates.orders(near) if candidates.rules(order)), near)
            settled = self._settled(first, near, nodes if len(clearings) > 1 else None)
            if settled is not None:
                proven &= not cuts  # what was cut off may have been a set in another order
                self._solver.record(proven=proven)
                return settled, proven
            model.cut(gone)
        self._solver.record(proven=False)
        return None, False

    def _settled(
        self, clearing: Clearing, gone: Sequence[int], nodes: Numbers | None = None
    ) -> Settled | None:
        """The gang bound once those of these have gone that are needed, in an order in which they may; None = that
        cannot be. `nodes`: where it lies.
        """
        candidates, seeker = clearing.candidates, clearing.seeker

        def placed(some: Sequence[int]) -> Spreads | None:
            fits = not clearing.limited or candidates.fits(some, clearing.limited)
            return candidates.placed(seeker, some, nodes) if fits else None

        if placed(gone) is None or candidates.rules(gone) is None:
            return None
        gone = thinned(candidates, gone, placed)
        spreads, rules = placed(gone), candidates.rules(gone)
        if spreads is None or rules is None or not candidates.fits(gone, seeker.charge):
            return None
        evictions = (
            Eviction(uid=candidates.uid(n), beneficiary=seeker.gang.uid, rule=rule)
            for n, rule in zip(gone, rules, strict=True)
        )
        return bound_to(seeker, spreads, *evictions)

    def _told(
        self, first: Clearing, answer: Settled, simple: Settled | None, *, proved: bool = False, jobs: int = 1
    ) -> Settled:
        """The answer with the work that its evictions lose, beside the next best set that was looked at."""
        self.proved += proved
        if not answer.evictions:
            return answer
        candidates, state = first.candidates, self._state
        gone = candidates.victims(answer)
        others = [candidates.victims(simple) if simple is not None else [], next_best(first, gone)]
        others = [other for other in others if other and not set(other) >= set(gone)]
        other = min(others, key=candidates.weight, default=[])
        mine, theirs = ([candidates.runs[n].admitted for n in some] for some in (gone, other))
        told = losses(mine, theirs, capacity=state.capacity, now=state.time, proved=proved, jobs=jobs)
        evictions = (replace(e, lost=lost) for e, lost in zip(answer.evictions, told, strict=True))
        return replace(answer, evictions=tuple(evictions))


def bound_to(seeker: Seeker, spreads: Spreads, *evictions: Eviction) -> Settled:
    """The gang bound to this place."""
    gang, variant, charge, _ = seeker
    return Settled(
        gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=evictions, bound=True
    )

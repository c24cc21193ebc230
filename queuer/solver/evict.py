"""Binding a gang to a place that its victims leave (DESIGN 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.reasons import Deferral
from queuer.solver import floors
from queuer.solver.asker import Asker, Credit
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle
from queuer.solver.displace import Displace
from queuer.solver.floor import Floor, Room
from queuer.solver.kept import Kept
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.prospects import Hope, Prospects, Turn
from queuer.solver.search import Search, evictions
from queuer.solver.victims import Candidate, Prey, Reach

WORK = 150_000
"""Steps that all searches for victims of one cycle may take (see `Search`): as many with the exact solver as without
it, or greedy alone would sometimes find the better plan.
"""


class Evict:
    """Looks for victims for the gangs of a cycle."""

    def __init__(self, cycle: Cycle, displace: Displace) -> None:
        self._cycle = cycle
        self._board = cycle.board
        self._displace = displace
        self.prey = Prey(cycle.board)
        self._turns: dict[str, dict[object, Turn]] = {}
        # Forms for which victims were found last time: they are searched for at once, without a look at all in reach.
        self._found = set[object]()
        # Without victims: gangs that are settled take no more than what is open in their places.
        self._hopeless_forms: Kept[set[object]] = Kept(lambda: cycle.board.ground)
        self._somebody_goes: Kept[bool] = Kept(lambda: cycle.board.version)
        self._prospects = Prospects(cycle, self.prey, self._turns)

    def bind(self, gang: Gang, refusal: Refusal, *, promised: bool = True) -> Chosen | Refusal:
        """Bind the gang to a place that victims leave, at its smallest size; else the refusal.

        `promised`: see `Rearrange.place`.
        """
        unsettled: list[Variant] = []
        hopes = set[Hope]()
        for variant, charge in gang.shape.smallest:
            answer = self._bound(gang, variant, charge)
            if isinstance(answer, Chosen):
                earlier = self._cycle.ask_earlier(gang, unsettled, evict=True) if promised else None
                if earlier is None:
                    self._cycle.take(answer)
                return earlier or answer
            hopes.add(answer)
            if answer is Hope.SOME:
                moved = self._displaced(gang, variant, charge)
                if moved is not None:
                    self._settles(gang, variant)
                    return moved
                unsettled.append(variant)
        if unsettled and promised:
            asked = self._cycle.ask(gang, unsettled, evict=True)
            if isinstance(asked, Chosen):
                return asked
            refusal = replace(refusal, contested=True)
            if isinstance(asked, Deferral):
                refusal = replace(refusal, final=False, cause=refusal.cause or asked)
        if promised and not hopes.isdisjoint((Hope.OTHERS, Hope.UNASKED)):
            others = hopes.isdisjoint((Hope.SOME, Hope.UNASKED))
            cause = refusal.cause or self._cycle.unasked() or Deferral.SIZE
            refusal = replace(refusal, final=False, contested=True, others=others, cause=cause)
        if not refusal.final:
            return replace(refusal, block=Block.DEFERRED, contested=True)
        return replace(refusal, in_place=self._asked_in_place(gang)) if refusal.contested else refusal

    def sought(self, uid: str) -> bool:
        """Whether room that others leave was looked for at the turn of this gang."""
        return uid in self._turns

    def _asked_in_place(self, gang: Gang) -> bool:
        """Whether others' victims, if there are any in this cycle, were as they are in a question about the gang."""
        settled = self._cycle.chosen.values()
        if not self._somebody_goes.of(None, lambda: any(one.evictions for one in settled)):
            return False
        reaches = (self.prey.reach(gang.pending, charge) for _, charge in gang.shape.smallest)
        return not all(map(self._opens, reaches))

    def _opens(self, reach: Reach) -> bool:
        """See `outcome.Arbiter`; without one nobody is asked."""
        contest = self._cycle.contest
        return self.prey.anybody(reach) if contest is None else contest.opens(reach)

    def _bound(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | Hope:
        """The gang bound to a place; else what hope there is."""
        board, workload = self._board, gang.pending.workload
        if not workload.preemptible and not board.claimed.entitled(workload.queue, charge, at=workload.queue):
            return Hope.NONE
        reach = self.prey.reach(gang.pending, charge)
        opens = self._opens(reach)
        if not opens and not (board.evicting and board.usage_unvacated().fits(workload.queue, charge)):
            return Hope.NONE
        rank = self._cycle.rank_beside(gang, charge)
        hopeless = self._hopeless_forms.of(None, set)
        form = (board.bars(workload, rank=rank, bound=True), self._cycle.key(gang, variant))
        if not opens and form in hopeless:
            return Hope.NONE
        turn = self._note(gang, Turn(variant, charge, reach, opens, rank))
        found = self.again(gang, variant)
        if found is not None:
            self._settles(gang, variant)
            return found
        if opens:
            return self._prospects.hope(gang, turn)
        excluded = self._cycle.excluded(self._cycle.pool(gang, charge, later=True), gang, variant)
        if not (excluded or self._needs_vacated(gang, variant, charge)):
            return Hope.UNASKED if board.vacating and not self._cycle.asks_readily else Hope.SOME
        hopeless.add(form)
        return Hope.NONE

    def _note(self, gang: Gang, turn: Turn) -> Turn:
        self._turns.setdefault(gang.uid, {})[_choice(turn.variant)] = turn
        return turn

    def recall(self, one: Chosen) -> bool:
        """Note the turn of a gang that is bound as it was in another attempt; whether it may evict its victims now."""
        for variant, charge in one.gang.shape.smallest:
            reach = self.prey.reach(one.gang.pending, charge)
            rank = self._cycle.rank_beside(one.gang, charge)
            self._note(one.gang, Turn(variant, charge, reach, self._opens(reach), rank))
            if variant == one.variant:
                return self.in_order([one])
        return False

    def _settles(self, gang: Gang, variant: Variant) -> None:
        """It may be settled only as somebody can be asked who else might go (see `Arbiter.opens`)."""
        turn = self._turns[gang.uid][_choice(variant)]
        self._cycle.as_greedy &= not turn.opens or self.prey.anybody(turn.reach)

    def _needs_vacated(self, gang: Gang, variant: Variant, charge: Charge) -> bool:
        """Whether it has no place, all settled gangs elsewhere, while those stay who leave anyway."""
        board, cycle = self._board, self._cycle
        if not board.vacating:
            return False
        beside = cycle.pool(gang, charge, later=True, gone="none", freed=board.unvacated)
        return cycle.room(beside.floor, gang, variant) is Room.NONE

    def _displaced(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | None:
        """The gang bound to what others leave, if that is enough once gangs bound before it lie elsewhere."""
        board, opens = self._board, self._turns[gang.uid][_choice(variant)].opens
        if not board.leaving or not board.later.usage.fits(gang.queue, charge):
            return None
        if board.vacating and not opens:  # others are moved without a look at who leaves anyway
            return None
        return self._displace.place(gang, variant, charge, bound=True)

    def again(self, gang: Gang, variant: Variant, *, plain: bool = False) -> Chosen | None:
        """A place for a gang that may evict whom it might at its turn: what others leave, else the cheapest victims.

        `plain`: else those of a plain rule (see `Search.newest`).
        None = there is none, or the gang had no such turn.
        """
        turn = self._turns.get(gang.uid, {}).get(_choice(variant))
        board, workload = self._board, gang.pending.workload
        if turn is None:
            return None
        charge = turn.charge
        later, room = board.later.usage, floors.later
        if not turn.opens:
            later, room = board.usage_unvacated(), floors.unvacated
        if board.leaving and later.fits(workload.queue, charge):
            floor = room(board, workload, rank=turn.rank)
            alone = self._cycle.on(floor, gang, variant).spreads
            if alone is not None:
                return Chosen(gang=gang, variant=variant, charge=charge, spreads=alone, bound=True)
        return self._with_victims(gang, turn, plain=plain) if self.prey.anybody(turn.reach) else None

    def _with_victims(self, gang: Gang, turn: Turn, *, plain: bool) -> Chosen | None:
        board, workload = self._board, gang.pending.workload
        variant, charge = turn.variant, turn.charge
        if self._cycle.counts.victims > WORK or self._prospects.beyond_root(turn):
            return None
        form = self._cycle.key(gang, variant)
        tried = form in self._found
        if not tried and not self._prospects.could_fit(gang, turn):
            return None
        bars, closed = board.bars(workload, rank=turn.rank, bound=True), self._cycle.closed(gang)
        asker = Asker(workload=workload, variant=variant, charge=charge, closed=closed, bars=bars)
        for counting in (True, False) if asker.is_led(board) else (False,):
            chosen = self._cheapest(asker, turn, plain=plain, counting=counting)
            if chosen is None:
                self._found.discard(form)
                return None
            self._found.add(form)
            floor, has_quota = self._left_by(chosen, queue=workload.queue, charge=charge, bars=bars)
            spreads = self._cycle.on(floor, gang, variant).spreads if has_quota else None
            if spreads is not None:
                gone = evictions(chosen, beneficiary=gang.uid)
                return Chosen(
                    gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=gone, bound=True
                )
        return None

    def _cheapest(
        self, asker: Asker, turn: Turn, *, plain: bool, counting: bool
    ) -> Sequence[Candidate] | None:
        """The cheapest victims found. `plain`: see `again`; `counting`: see `Trial`."""
        work, permitted = WORK - self._cycle.counts.victims, self.prey.permitted(turn.reach)
        search = Search(self._board, self.prey, asker, permitted, work=work, counting=counting)
        chosen = search.newest() if plain else search.cheapest()
        self._cycle.counts.victims += search.work
        return chosen

    def _left_by(
        self, chosen: Sequence[Candidate], *, queue: str, charge: Charge, bars: tuple[str, ...]
    ) -> tuple[Floor, bool]:
        """The nodes once these have gone, and whether quota bears the charge then."""
        board, later = self._board, self._board.later
        floor, credit = floors.later_behind(board, bars), Credit(board, bars)
        for candidate in chosen:
            later.release(candidate.hold)
            credit.move(candidate.hold, 1)
        nodes = np.array(sorted({node for c in chosen for node in c.hold.rows}), dtype=np.intp)
        left = board.behind(bars, later.free[nodes], nodes, more=credit.more)
        has_quota = later.usage.fits(queue, charge)
        for candidate in chosen:
            later.release(candidate.hold, times=-1)
        return floor.but(nodes, left), has_quota

    def in_order(self, settled: Iterable[Chosen]) -> bool:
        """Whether the victims of these, none of them on the board, may go one after the other as they are listed."""
        line = self._board.line().copy()
        for one in settled:
            if not one.evictions:
                continue
            reach = self._turns[one.gang.uid][_choice(one.variant)].reach
            candidates = (way for c in self.prey.candidates(reach) for way in c.by_rule)
            by_uid = {(c.uid, c.rule): c for c in candidates}
            for eviction in one.evictions:
                candidate = by_uid.get((eviction.uid, eviction.rule))
                if candidate is None or not candidate.permitted(line):
                    return False
                line.add(candidate.hold.admitted.workload.queue, candidate.hold.charge, times=-1)
        return True


def _choice(variant: Variant) -> object:
    return (tuple(variant.flavors.items()), tuple(variant.counts.items()))

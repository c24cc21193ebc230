"""Binding a gang to a place that its victims leave, and the bounds that show that no victims would help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from queuer.domain.quota import Account, Charge
from queuer.domain.usage import Usage
from queuer.domain.workload import Workload
from queuer.solver.capacity import Spread, place
from queuer.solver.contested import Proof, Variant
from queuer.solver.cycle import Cycle
from queuer.solver.displace import Displace
from queuer.solver.floor import Floor
from queuer.solver.frame import Mask as Flags
from queuer.solver.frame import Matrix
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.search import Search, evictions
from queuer.solver.trial import Asker
from queuer.solver.victims import NOBODY, Prey, Reach

NO_REACH = Reach((), NOBODY)
WORK = 150_000
"""Steps that all searches for victims of one cycle may take (see `Search`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What a gang asked for at its turn, and what it might do."""

    variant: Variant
    charge: Charge
    reach: Reach
    rank: tuple[bool, int]


class Evict:
    """Looks for victims for the gangs of a cycle."""

    def __init__(self, cycle: Cycle, displace: Displace, *, work: int = WORK) -> None:
        """`work`: steps after which no victims are looked for any more in this cycle."""
        self._cycle = cycle
        self._board = cycle.board
        self._work = work
        self._displace = displace
        self._prey = Prey(cycle.board)
        self._turns: dict[str, dict[object, Turn]] = {}
        self._reach: dict[str, Flags] = {}
        self._usages: tuple[int, dict[object, Usage]] = (0, {})
        self._all_gone: tuple[int, dict[Reach, Flags]] = (0, {})

    def bind(self, gang: Gang, refusal: Refusal, *, promised: bool = True) -> Chosen | Refusal:
        """Bind the gang to a place that victims leave, at its smallest size; else the refusal.

        `promised`: see `Rearrange.place`.
        """
        unsettled: list[Variant] = []
        for full in gang.shape.variants:
            variant, charge = self._cycle.resized(gang, full, gang.shape.least)
            answer = self._bound(gang, variant, charge)
            if isinstance(answer, Chosen):
                self._cycle.take(answer)
                return answer
            if not answer:
                moved = self._displaced(gang, variant, charge)
                if moved is not None:
                    return moved
                unsettled.append(variant)
        if unsettled and promised:
            asked = self._cycle.ask(gang, unsettled, evict=True)
            if isinstance(asked, Chosen):
                return asked
            proven = refusal.proven and isinstance(asked, Proof)
            refusal = replace(refusal, proven=proven, contested=True)
        return refusal if refusal.proven else replace(refusal, block=Block.DEFERRED, contested=True)

    def _bound(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | bool:
        """The gang bound to a place; else whether it is proven that there is none."""
        board, workload = self._board, gang.pending.workload
        if not workload.preemptible and not board.claimed.entitled(workload.queue, charge, at=workload.queue):
            return True
        reach = self._prey.reach(gang.pending, charge)
        anybody = self._prey.anybody(reach)
        if not anybody and board.later is board.now:
            return True
        if not anybody and board.later.usage.shortfall(workload.queue, charge) is not None:
            return True
        rank = self._cycle.rank(gang, charge) if board.horizons else (False, 0)
        self._turns.setdefault(gang.uid, {})[_choice(variant)] = Turn(variant, charge, reach, rank)
        found = self.again(gang, variant)
        if found is not None:
            return found
        if anybody:
            return self._hopeless(gang, variant, charge, reach)
        return self._cycle.excluded(self._cycle.pool(gang, charge, later=True), gang, variant)

    def _displaced(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | None:
        """The gang bound to what others leave, if that is enough once gangs bound before it lie elsewhere."""
        board = self._board
        if board.later is board.now or board.later.usage.shortfall(gang.queue, charge) is not None:
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
        if board.later is not board.now and board.later.usage.shortfall(workload.queue, charge) is None:
            bars, floor = board.bars(workload, rank=turn.rank), board.floor_later(workload, rank=turn.rank)
            alone = self._cycle.first_on("later", floor, bars, gang, variant).spreads
            if alone is not None:
                return Chosen(gang=gang, variant=variant, charge=charge, spreads=alone, bound=True)
        return self._with_victims(gang, turn, plain=plain) if self._prey.anybody(turn.reach) else None

    def _with_victims(self, gang: Gang, turn: Turn, *, plain: bool) -> Chosen | None:
        board, workload = self._board, gang.pending.workload
        variant, charge, reach, rank = turn.variant, turn.charge, turn.reach, turn.rank
        if self._cycle.on(self._emptied(reach, workload, rank), gang, variant).spreads is None:
            return None
        left = self._work - self._cycle.counts.work
        if left < 0:
            return None
        bars, closed = board.bars(workload, rank=rank), self._cycle.closed(gang)
        asker = Asker(workload=workload, variant=variant, charge=charge, closed=closed, bars=bars)
        search = Search(board, self._prey, asker, self._prey.permitted(reach), work=left)
        chosen = search.newest() if plain else search.cheapest()
        self._cycle.counts.work += search.work
        if chosen is None:
            return None
        sheet = board.later.copy()
        for candidate in chosen:
            sheet.release(candidate.hold)
        spreads = self._placed(sheet.free, gang, variant, rank)
        if spreads is None or sheet.usage.shortfall(workload.queue, charge) is not None:
            return None
        gone = evictions(chosen, beneficiary=gang.uid)
        return Chosen(gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=gone, bound=True)

    def in_order(self, settled: Iterable[Chosen]) -> bool:
        """Whether the victims of these, none of them on the board, may go one after the other as they are listed."""
        line = self._board.line().copy()
        for one in settled:
            if not one.evictions:
                continue
            reach = self._turns[one.gang.uid][_choice(one.variant)].reach
            by_uid = {c.uid: c for c in self._prey.candidates(reach)}
            for eviction in one.evictions:
                candidate = by_uid.get(eviction.uid)
                if candidate is None or not candidate.permitted(line):
                    return False
                line.add(candidate.hold.admitted.workload.queue, candidate.hold.charge, times=-1)
        return True

    def _placed(
        self, free: Matrix, gang: Gang, variant: Variant, rank: tuple[bool, int]
    ) -> dict[str, Spread] | None:
        workload = gang.pending.workload
        free = self._board.behind_horizons(free, workload, rank=rank)
        return place(self._board.frame, free, workload, variant, closed=self._cycle.closed(gang))

    def _emptied(self, reach: Reach, workload: Workload, rank: tuple[bool, int]) -> Floor:
        """The nodes once everyone in reach has gone too."""

        def free() -> Matrix:
            gone = self._prey.vacated(self._prey.staying(self._prey.flags(reach)))
            return self._board.behind_horizons(self._board.later.free + gone, workload, rank=rank)

        return self._board.floor(("emptied", reach, self._board.bars(workload, rank=rank)), free)

    def _hopeless(self, gang: Gang, variant: Variant, charge: Charge, reach: Reach) -> bool:
        """A bound: it would not fit even if everyone had gone who may be evicted for it or for any gang that evicts in
        this cycle, and all that this cycle has settled lay elsewhere.
        """
        board, queue = self._board, gang.queue
        gone = partial(self._vacated, reach)
        pool = self._cycle.pool(gang, charge, later=True, reach=reach, gone=gone)
        if self._cycle.excluded(pool, gang, variant):
            return True
        binding = board.claimed.binding(queue, charge)
        if board.later.usage.shortfall(queue, {a: charge[a] for a in binding}) is None:
            return False
        usage = self._usage_without(reach, binding)
        return usage.shortfall(queue, {a: charge[a] for a in binding}) is not None

    def _vacated(self, reach: Reach) -> Matrix:
        return self._prey.vacated(self._gone(reach))

    def _gone(self, reach: Reach) -> Flags:
        """Everyone who could be evicted for this gang or for one that this cycle has bound, and is not yet."""
        if self._all_gone[0] != self._board.version:
            self._all_gone = (self._board.version, {})
        known = self._all_gone[1]
        if reach not in known:
            flags = self._prey.flags(reach)
            for one in self._cycle.chosen.values():
                if one.bound:
                    flags |= self._reach_of(one)
            known[reach] = self._prey.staying(flags)
        return known[reach]

    def _usage_without(self, reach: Reach, binding: frozenset[Account]) -> Usage:
        """What would be used, in these accounts, with all those gone."""
        if self._usages[0] != self._board.version:
            self._usages = (self._board.version, {})
        known = self._usages[1]
        gone = self._gone(reach)
        key = (gone.tobytes(), binding)
        if key not in known:
            known[key] = self._board.later.usage.copy()
            self._prey.release(known[key], gone, only=binding)
        return known[key]

    def _reach_of(self, one: Chosen) -> Flags:
        """Everyone whom a bound gang could evict at its turn, whichever choice it then got."""
        uid = one.gang.uid
        if uid not in self._reach:
            flags = self._prey.flags(NO_REACH)
            for turn in self._turns.get(uid, {}).values():
                flags = flags | self._prey.flags(turn.reach)
            self._reach[uid] = flags
        return self._reach[uid]


def _choice(variant: Variant) -> object:
    return (tuple(variant.flavors.items()), tuple(variant.counts.items()))

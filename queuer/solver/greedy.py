"""Settling gangs one turn at a time: flavor, size and place without eviction, then another arrangement of
what this cycle has started, then victims.

The answer of a turn is a `Chosen` or a `Refusal`; a refusal keeps what the explanation needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.reasons import Deferral
from queuer.solver import floors
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle
from queuer.solver.displace import Displace
from queuer.solver.evict import Evict
from queuer.solver.floor import Found
from queuer.solver.frame import Matrix, NodeRows
from queuer.solver.holding import holds, intact, lift, unharmed
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.rearrange import Rearrange
from queuer.solver.revise import revise
from queuer.solver.victims import Prey

DEPTHS = (
    Block.FLAVOR,
    Block.ENTITLEMENT,
    Block.QUOTA,
    Block.LANDING,
    Block.PLACE,
    Block.RESERVED,
    Block.DEFERRED,
)
"""How far a turn came, least first: room that is kept for others is nearer than none."""


Settle = Callable[[Gang], Chosen | Refusal]


class Greedy(Cycle):
    """Settles gangs on a board in the order in which it is asked. `ask_back`: settles one, in the way that is given, on
    the hosts that it keeps off, if that may be.
    """

    def __init__(self, board: Board, *, crowded: Mapping[str, frozenset[str]] | None = None) -> None:
        """`crowded`: see `Cycle`."""
        super().__init__(board, crowded=crowded)
        self._displace = Displace(self)
        self._rearrange = Rearrange(self, self._displace)
        self._evict = Evict(self, self._displace)
        self._refused: dict[object, tuple[object, Refusal]] = {}
        self.ask_back: Callable[[Gang, Settle], Chosen | None] | None = None

    def turn(self, gang: Gang, *, promised: bool = True) -> Chosen | Refusal:
        """Settle one gang, or say what blocks it. Nothing on the board changes when it is refused; only for one that
        awaits pods of earlier cycles place and quota are kept.

        `promised`: what greedy cannot place is contested; without it a refusal needs no proof.
        """
        key = self._likeness(gang)
        known = self._refused.get(key)
        if gang.uid in self._crowded:
            answer = self._start_apart(gang)
        elif known is not None and known[0] == self._moment():
            answer = known[1]
        else:
            answer = self._settled(gang, promised=promised)
            if gang.shape.partial and isinstance(answer, Refusal) and answer.block is not Block.LANDING:
                answer = replace(
                    answer, block=Block.DEFERRED, final=False, contested=True, cause=Deferral.SIZE
                )
            if isinstance(answer, Refusal) and answer.block is not Block.LANDING:
                self._refused[key] = (self._moment(), answer)
        if isinstance(answer, Refusal):
            self._count(answer)
        return answer

    def _settled(self, gang: Gang, *, promised: bool) -> Chosen | Refusal:
        answer = self.start(gang, promised=promised)
        if isinstance(answer, Refusal) and self._awaits(gang):
            return Refusal(block=Block.LANDING)
        if isinstance(answer, Refusal) and answer.block in (Block.PLACE, Block.RESERVED):
            answer = self._rearrange.place(gang, answer, promised=promised)
        if isinstance(answer, Refusal) and answer.block is not Block.FLAVOR:
            answer = self._evict.bind(gang, answer, promised=promised)
        return answer

    @property
    def prey(self) -> Prey:
        """Who may be evicted."""
        return self._evict.prey

    def sought(self, uid: str) -> bool:
        """Whether room that others leave was looked for at its turn."""
        return self._evict.sought(uid)

    def place_anew(self, one: Chosen, *, push: bool) -> bool:
        """Settle a gang once more, off the board now, at its size and flavor; what quota allowed stays allowed.

        `push`: moves others out of the way.
        """
        found = self._evict.again(one.gang, one.variant) if one.bound else self._again(one)
        if found is None and push:
            return self._displace.place(one.gang, one.variant, one.charge, bound=one.bound) is not None
        if found is not None:
            self.take(found)
        return found is not None

    def _again(self, one: Chosen) -> Chosen | None:
        workload = one.gang.pending.workload
        rank = self.rank_beside(one.gang, one.charge)
        spreads = self.on(floors.now(self.board, workload, rank=rank), one.gang, one.variant).spreads
        return None if spreads is None else replace(one, spreads=spreads)

    def retake(self, one: Chosen) -> Chosen | None:
        """Settle a gang at its turn as it was in the end of another attempt, where nodes, quota, reservations and its
        rights bear that; None = nothing is settled. Who might start now, or have more, or an earlier flavor, has a turn
        like any other.
        """
        self.as_greedy = False
        if one.bound:
            started = self.start(one.gang)
            if isinstance(started, Chosen):
                lift(self, [started])
                self.forget(one.gang.uid)
                return None
        if not (self._evict.recall(one) if one.bound else one.is_full):
            return None
        whole = unharmed(self, one)
        self.take(one)
        if holds(self, (), [one]) and intact(self.board) >= whole:
            return one
        lift(self, [one])
        self.forget(one.gang.uid)
        return None

    def revise(self) -> None:
        """All have had their turn: look for cheaper victims."""
        revise(self, self._evict)

    def _count(self, refusal: Refusal) -> None:
        if refusal.contested:
            self.counts.contested += 1
            self.counts.proved += refusal.final
            self.counts.proved_in_place += refusal.final and refusal.in_place
            if not refusal.final:
                self.counts.deferred[refusal.cause or Deferral.TIME] += 1

    def _moment(self) -> object:
        """While this is the same, what is refused stays refused. Each start can put a queue above its
        guarantee and so permit new victims, where there are any.
        """
        return (self.board.epoch, len(self.chosen) if self.board.holds else 0)

    def _likeness(self, gang: Gang) -> object:
        """Equal for gangs that get the same answer while nothing changes. Of how long they run, it matters only which
        reservations would still find them there.
        """
        board, workload = self.board, gang.pending.workload
        if not board.horizons:
            return gang.likeness
        return (gang.likeness, *[board.outlives(h, workload) for h in board.horizons.values()])

    def settle(self, gang: Gang) -> Chosen | Refusal:
        """Start, or be bound, with nothing asked of the exact solver."""
        answer = self.start(gang)
        return answer if isinstance(answer, Chosen) else self._evict.bind(gang, answer, promised=False)

    def _start_apart(self, gang: Gang) -> Chosen | Refusal:
        """Start, or be bound, away from others that are landing, or wait until they have landed."""
        answer = self.start(gang)
        if isinstance(answer, Refusal) and self.ask_back is not None:
            answer = self.ask_back(gang, self.start) or answer
        if isinstance(answer, Chosen):
            return answer
        if self._awaits(gang):
            return Refusal(block=Block.LANDING)
        answer = self._evict.bind(gang, answer)
        if isinstance(answer, Refusal) and self.ask_back is not None:
            answer = self.ask_back(gang, self.settle) or answer
        return replace(answer, block=Block.LANDING) if isinstance(answer, Refusal) else answer

    def _awaits(self, gang: Gang) -> bool:
        """Whether it fits, at its smallest size, once pods of earlier cycles have landed; from now on that is kept for
        it.
        """
        board, workload = self.board, gang.pending.workload
        for variant, charge in gang.shape.smallest if board.now.awaiting else ():
            if self.quota_block(workload, variant, charge, board.sheets()) is None:
                floor = floors.landed(board, workload, rank=self.rank_beside(gang, charge))
                spreads = self.on(floor, gang, variant).spreads
                if spreads is not None:
                    self.keep(Chosen(gang=gang, variant=variant, charge=charge, spreads=spreads))
                    return True
        return False

    def start(self, gang: Gang, *, promised: bool = False) -> Chosen | Refusal:
        """Start at once, off the nodes that it keeps off, with nobody evicted; others move only for `promised` flavors
        that come before those to be had.
        """
        refused: list[tuple[Refusal, Charge]] = []
        shape = gang.shape
        for variant, charge, (_, least) in zip(shape.variants, shape.charges, shape.smallest, strict=True):
            answer = self.sized(gang, variant, charge, self._try_now)
            if isinstance(answer, Chosen):
                earlier = self._rearrange.earlier(gang, len(refused)) if refused and promised else None
                if earlier is None:
                    self.take(answer)
                return earlier or answer
            refused.append((answer, least))
        if len(refused) > 1:
            return replace(nearest(refused), final=all(one.final for one, _ in refused))
        return refused[0][0] if refused else Refusal(block=Block.FLAVOR)

    def sized(
        self,
        gang: Gang,
        variant: Variant,
        charge: Charge,
        attempt: Callable[[Gang, Variant, Charge], Chosen | Refusal],
    ) -> Chosen | Refusal:
        """The largest size that fits: full, else the smallest with each pod set in turn grown as far as it
        goes.
        """
        answer = attempt(gang, variant, charge)
        least = gang.shape.least
        if isinstance(answer, Chosen) or variant.counts == least:
            return answer
        counts = dict(least)
        best = attempt(gang, *self.resized(gang, variant, counts))
        if isinstance(best, Refusal):
            return best
        for name, most in variant.counts.items():
            low, high = counts[name], most
            while low < high:
                middle = (low + high + 1) // 2
                got = attempt(gang, *self.resized(gang, variant, {**counts, name: middle}))
                if isinstance(got, Chosen):
                    low, best = middle, got
                else:
                    high = middle - 1
            counts[name] = low
        return best

    def _try_now(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | Refusal:
        workload = gang.pending.workload
        blocked = self.quota_block(workload, variant, charge, self.board.sheets())
        if blocked is not None:
            return blocked
        board = self.board
        rank = self.rank_beside(gang, charge)
        bars = board.bars(workload, rank=rank)
        found = self._backfilled(gang, variant, bars) or self.on(
            floors.now(board, workload, rank=rank), gang, variant
        )
        if found.spreads is not None:
            return Chosen(gang=gang, variant=variant, charge=charge, spreads=found.spreads)
        owners = self.in_the_way(gang, variant, bars)
        block = Block.RESERVED if owners else Block.PLACE
        return Refusal(
            block=block,
            variant=variant,
            owners=owners,
            final=found.exact,
            kept=bool(self.awaiting),
            started=self.begun,
        )

    def _backfilled(self, gang: Gang, variant: Variant, bars: Sequence[str]) -> Found | None:
        """A place on nodes that a reservation keeps from most others, for a gang that will have ended by then."""
        board, workload = self.board, gang.pending.workload
        if not board.horizons or workload.preferred is not None or bars:
            return None
        found = self.on(board.floor("kept", self._kept), gang, variant)
        return None if found.spreads is None else found

    def _kept(self, nodes: NodeRows) -> Matrix:
        """What is free on nodes where a reservation begins before others would end; nothing elsewhere."""
        kept = np.zeros(len(self.board.frame.names), dtype=bool)
        kept[list(frozenset[int]().union(*(h.nodes for h in self.board.horizons.values())))] = True
        return np.where(kept[nodes, None], self.board.unheld(nodes), 0)


def nearest(refused: Sequence[tuple[Refusal, Charge]]) -> Refusal:
    """The refusal to explain, of one for each variant, with what that asks for at its smallest size: of the first that
    came farthest, if a row of quota in its way could ever bear it.
    """

    def depth(one: tuple[Refusal, Charge]) -> tuple[int, bool]:
        refusal, least = one
        bar, rank = refusal.bar, DEPTHS.index(refusal.block)
        return rank, bar is None or tuple(least.values())[bar.at] <= bar.limit

    return max(refused, key=depth)[0]

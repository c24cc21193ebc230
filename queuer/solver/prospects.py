"""Bounds that show without a search that no victims would help a gang (DESIGN 3.4).

Each says what would be free, or used, had everyone gone who might go: for this gang, or for any that evicts in this
cycle, so that thousands of gangs share what they are reckoned from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge
from queuer.domain.usage import Usage
from queuer.solver import floors
from queuer.solver.contested import Variant
from queuer.solver.cycle import POOLS, Cycle
from queuer.solver.floor import Floor, Room
from queuer.solver.frame import Mask as Flags
from queuer.solver.frame import Numbers
from queuer.solver.journal import Followed
from queuer.solver.kept import Kept
from queuer.solver.order import Gang
from queuer.solver.pool import Emptied, Pool
from queuer.solver.victims import NOBODY, Prey, Reach

NO_REACH = Reach((), NOBODY)
EMPTIED = 12
"""Floors kept of nodes that all whom some gang may evict have left."""


class Hope(StrEnum):
    """What hope a gang has that finds no victims that are enough. `OTHERS`: only other victims of others could help.
    `UNASKED`: nobody is asked whether there is any.
    """

    NONE = "none"
    OTHERS = "others"
    UNASKED = "unasked"
    SOME = "some"


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What a gang asked for at its turn, and what it might do. `opens`: whether it might evict anybody."""

    variant: Variant
    charge: Charge
    reach: Reach
    opens: bool
    rank: tuple[bool, int]


@dataclass(slots=True, eq=False)
class Everyone:
    """Whom the gangs that this cycle has bound could evict at their turns (H). `seen`: settled gangs looked at."""

    seen: int
    flags: Flags


@dataclass(frozen=True, slots=True, eq=False)
class Gone:
    """Admitted work that is assumed to have gone (H). `key`: equal for the same; `charged`: what it holds by account,
    as far as that was asked.
    """

    flags: Flags
    key: bytes
    charged: dict[Account, int] = field(default_factory=dict)


class Prospects:
    """What hope of victims the gangs of a cycle have, by their turns."""

    def __init__(self, cycle: Cycle, prey: Prey, turns: Mapping[str, Mapping[object, Turn]]) -> None:
        """`turns`: of all gangs so far that might evict, by uid."""
        self._cycle = cycle
        self._board = cycle.board
        self._prey = prey
        self._turns = turns
        self._everyone: Kept[Everyone] = Kept(lambda: cycle.lifts)
        self._usages: Kept[Usage] = Kept(lambda: cycle.board.version)
        self._emptied_by: Kept[Floor] = Kept(lambda: cycle.board.version, most=EMPTIED)
        self._shared: Followed[Emptied] = Followed(cycle.board.freed, most=POOLS)
        self._gone: Kept[Gone] = Kept(lambda: cycle.board.version)

    def hope(self, gang: Gang, turn: Turn) -> Hope:
        """None if it would not fit even once everyone had gone who may be evicted for it or for any gang that evicts in
        this cycle. Where nobody can be asked about all their victims, its own must be enough.
        """
        if self._excluded(gang, turn, self._everyone_gone(NO_REACH), self._everyone_gone(turn.reach)):
            return Hope.NONE
        if self._cycle.unasked() is not None:
            nobody, own = self._own_gone(NO_REACH), self._own_gone(turn.reach)
            if self._excluded(gang, turn, nobody, own):
                return Hope.OTHERS if self._cycle.anybody_bound else Hope.NONE
        return Hope.SOME

    def beyond_root(self, turn: Turn) -> bool:
        """Whether root's limit would be exceeded even once everyone had gone who can go for it now."""
        return self._beyond_root(turn.charge, self._own_gone(turn.reach))

    def could_fit(self, gang: Gang, turn: Turn) -> bool:
        """Whether there is room once everyone in reach has gone."""
        return self._cycle.room(self._emptied(gang, turn), gang, turn.variant) is Room.SOME

    def _emptied(self, gang: Gang, turn: Turn) -> Floor:
        """The nodes once everyone in reach has gone too."""
        board, holds, workload = self._board, self._prey.holds, gang.pending.workload
        bars = board.bars(workload, rank=turn.rank, bound=True)

        def floor() -> Floor:
            flags = holds.staying(self._prey.flags(turn.reach))
            (nodes, gone), more = holds.vacated(flags), holds.credited(flags, bars)
            free = board.behind(bars, board.later.free[nodes] + gone, nodes, more=more)
            return floors.later(board, workload, rank=turn.rank).but(nodes, free)

        return self._emptied_by.of((turn.reach, bars), floor)

    def _excluded(self, gang: Gang, turn: Turn, others: Gone, gone: Gone) -> bool:
        """Whether it would not fit with these gone, and all that this cycle has settled elsewhere. `others`: the part
        of them that thousands of gangs share.
        """
        queue, charge = gang.queue, turn.charge
        if self._beyond_root(charge, others) and self._beyond_root(charge, gone):
            return True
        if self._breaks_rows(queue, charge, others) and self._breaks_rows(queue, charge, gone):
            return True
        if self._fits_once_gone(gang, turn, others):
            return False
        return self._cycle.excluded(self._pool(gang, turn, gone), gang, turn.variant)

    def _breaks_rows(self, queue: str, charge: Charge, gone: Gone) -> bool:
        """Whether it would break a row on its path, the live capacity aside, which `_beyond_root` looks at; where some
        queue keeps part of its guarantee back, that counts against it, too.
        """
        board = self._board
        binding = board.claimed.binding(queue, charge)
        asked = {a: charge[a] for a in binding}
        live = not board.book.initial[ROOT].keys().isdisjoint(binding)
        if board.later.usage.fits(queue, asked, live=live):
            return False
        return not self._usage_without(gone, binding).fits(queue, asked, live=live)

    def _beyond_root(self, charge: Charge, gone: Gone) -> bool:
        """Whether all queues together would still use more than root's limit."""
        used, limit = self._board.later.usage.used, self._board.book.limit
        for account, asks in charge.items():
            most = limit(ROOT, account)
            over = 0 if most is None else used(ROOT, account) + asks - most
            if over > 0 and over > self._charged(account, gone):
                return True
        return False

    def _charged(self, account: Account, gone: Gone) -> int:
        if account not in gone.charged:
            gone.charged[account] = self._prey.holds.charged(account, gone.flags)
        return gone.charged[account]

    def _fits_once_gone(self, gang: Gang, turn: Turn, gone: Gone) -> bool:
        """Whether nothing excludes it with these gone, nor then with more: thousands of gangs share the answer."""
        pool = self._shared_pool(gang, turn, gone)
        if pool.excludes(self._cycle.key(gang, turn.variant), gang.pending.workload, turn.variant):
            return False
        return self._cycle.room(pool.floor, gang, turn.variant) is Room.SOME

    def _shared_pool(self, gang: Gang, turn: Turn, gone: Gone) -> Pool:
        """As `_pool`. Mostly who leaves was thought gone before, so one that is kept seldom changes."""
        base = self._cycle.pool(gang, turn.charge, later=True)
        if not gone.flags.any():
            return base
        bars = self._board.bars(gang.pending.workload, rank=turn.rank, bound=True)
        shared = self._shared.of((self._cycle.lifts, bars), base.emptied, _outdated)
        if shared.gone != gone.key:
            shared.renew(base, *self._prey.holds.vacated(gone.flags))
            shared.gone = gone.key
        return shared.pool

    def _pool(self, gang: Gang, turn: Turn, gone: Gone) -> Pool:
        freed = partial(self._prey.holds.vacated, gone.flags)
        return self._cycle.pool(gang, turn.charge, later=True, gone=gone.key, freed=freed)

    def _own_gone(self, reach: Reach) -> Gone:
        """Everyone who can go for this gang while others' victims are as they are."""

        def find() -> Gone:
            flags = self._prey.holds.flagged(c.uid for c in self._prey.permitted(reach))
            return Gone(flags, flags.tobytes())

        return self._gone.of((reach, False), find)

    def _everyone_gone(self, reach: Reach) -> Gone:
        """Everyone who could be evicted for this gang or for one that this cycle has bound, and is not yet."""
        return self._gone.of((reach, True), partial(self._find_gone, reach))

    def _find_gone(self, reach: Reach) -> Gone:
        everyone = self._everyone.of(None, lambda: Everyone(0, self._prey.flags(NO_REACH)))
        for one in self._cycle.settled_since(everyone.seen):
            if one.bound:
                for turn in self._turns.get(one.gang.uid, {}).values():
                    everyone.flags |= self._prey.flags(turn.reach)
        everyone.seen = len(self._cycle.chosen)
        flags = self._prey.holds.staying(self._prey.flags(reach) | everyone.flags)
        return Gone(flags, flags.tobytes())

    def _usage_without(self, gone: Gone, binding: frozenset[Account]) -> Usage:
        """What would be used, in these accounts, with all those gone."""

        def usage() -> Usage:
            left = self._board.later.usage.copy()
            self._prey.holds.release(left, gone.flags, only=binding)
            return left

        return self._usages.of((gone.key, binding), usage)


def _outdated(shared: Emptied, _: Numbers) -> None:
    shared.gone = None

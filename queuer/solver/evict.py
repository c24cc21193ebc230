"""Binding a gang to a place that its victims leave, and the bounds that show that no victims would help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import islice

import numpy as np

from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge
from queuer.domain.reasons import Deferral
from queuer.domain.usage import Usage
from queuer.domain.workload import Workload
from queuer.solver.contested import Variant
from queuer.solver.cycle import POOLS, Cycle
from queuer.solver.displace import Displace
from queuer.solver.floor import Floor, Room
from queuer.solver.frame import Mask as Flags
from queuer.solver.frame import Numbers
from queuer.solver.journal import Followed
from queuer.solver.kept import Kept
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.pool import Emptied, Pool
from queuer.solver.search import Search, evictions
from queuer.solver.trial import Asker, Credit
from queuer.solver.victims import NOBODY, Candidate, Prey, Reach

NO_REACH = Reach((), NOBODY)
WORK = 150_000
"""Steps that all searches for victims of one cycle may take (see `Search`): as many with the exact solver as without
it, or greedy alone would sometimes find the better plan.
"""

EMPTIED = 12
"""Floors kept of nodes that all whom some gang may evict have left."""


class Hope(StrEnum):
    """What hope a gang has that finds no victims that are enough. `OTHERS`: only other victims of others could help."""

    NONE = "none"
    OTHERS = "others"
    SOME = "some"


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


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What a gang asked for at its turn, and what it might do."""

    variant: Variant
    charge: Charge
    reach: Reach
    rank: tuple[bool, int]


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
        self._everyone: Kept[Everyone] = Kept(lambda: cycle.lifts)
        self._usages: Kept[Usage] = Kept(lambda: cycle.board.version)
        self._emptied_by: Kept[Floor] = Kept(lambda: cycle.board.version, most=EMPTIED)
        self._shared: Followed[Emptied] = Followed(cycle.board.freed, most=POOLS)
        self._gone: Kept[Gone] = Kept(lambda: cycle.board.version)

    def bind(self, gang: Gang, refusal: Refusal, *, promised: bool = True) -> Chosen | Refusal:
        """Bind the gang to a place that victims leave, at its smallest size; else the refusal.

        `promised`: see `Rearrange.place`.
        """
        unsettled: list[Variant] = []
        others = False
        for variant, charge in gang.shape.smallest:
            answer = self._bound(gang, variant, charge)
            if isinstance(answer, Chosen):
                earlier = self._cycle.ask_earlier(gang, unsettled, evict=True) if promised else None
                if earlier is None:
                    self._cycle.take(answer)
                return earlier or answer
            others |= answer is Hope.OTHERS
            if answer is Hope.SOME:
                moved = self._displaced(gang, variant, charge)
                if moved is not None:
                    return moved
                unsettled.append(variant)
        if unsettled and promised:
            asked = self._cycle.ask(gang, unsettled, evict=True)
            if isinstance(asked, Chosen):
                return asked
            refusal = replace(refusal, contested=True)
            if isinstance(asked, Deferral):
                refusal = replace(refusal, final=False, cause=refusal.cause or asked)
        if others and promised:
            cause = refusal.cause or self._unasked()
            refusal = replace(refusal, final=False, contested=True, others=not unsettled, cause=cause)
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
        """See `outcome.Contest`; without one nobody is asked."""
        contest = self._cycle.contest
        return self.prey.anybody(reach) if contest is None else contest.opens(reach)

    def _bound(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | Hope:
        """The gang bound to a place; else what hope there is."""
        board, workload = self._board, gang.pending.workload
        if not workload.preemptible and not board.claimed.entitled(workload.queue, charge, at=workload.queue):
            return Hope.NONE
        reach = self.prey.reach(gang.pending, charge)
        opens = self._opens(reach)
        if not opens and board.later is board.now:
            return Hope.NONE
        if not opens and not board.later.usage.fits(workload.queue, charge):
            return Hope.NONE
        rank = self._cycle.rank_beside(gang, charge)
        hopeless = self._hopeless_forms.of(None, set)
        form = (board.bars(workload, rank=rank, bound=True), self._cycle.key(gang, variant))
        if not opens and form in hopeless:
            return Hope.NONE
        self._turns.setdefault(gang.uid, {})[_choice(variant)] = Turn(variant, charge, reach, rank)
        found = self.again(gang, variant)
        if found is not None:
            return found
        if opens:
            return self._hope(gang, variant, charge, reach)
        excluded = self._cycle.excluded(self._cycle.pool(gang, charge, later=True), gang, variant)
        if not excluded:
            return Hope.SOME
        hopeless.add(form)
        return Hope.NONE

    def _displaced(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | None:
        """The gang bound to what others leave, if that is enough once gangs bound before it lie elsewhere."""
        board = self._board
        if board.later is board.now or not board.later.usage.fits(gang.queue, charge):
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
        if board.later is not board.now and board.later.usage.fits(workload.queue, charge):
            floor = board.floor_later(workload, rank=turn.rank)
            alone = self._cycle.on(floor, gang, variant).spreads
            if alone is not None:
                return Chosen(gang=gang, variant=variant, charge=charge, spreads=alone, bound=True)
        return self._with_victims(gang, turn, plain=plain) if self.prey.anybody(turn.reach) else None

    def _with_victims(self, gang: Gang, turn: Turn, *, plain: bool) -> Chosen | None:
        board, workload = self._board, gang.pending.workload
        variant, charge, reach, rank = turn.variant, turn.charge, turn.reach, turn.rank
        work = WORK - self._cycle.counts.victims
        if work < 0:
            return None
        if self._beyond_root(charge, self._own_gone(reach)):
            return None
        form = self._cycle.key(gang, variant)
        tried = form in self._found
        if not tried and not self._could_fit(gang, turn):
            return None
        bars, closed = board.bars(workload, rank=rank, bound=True), self._cycle.closed(gang)
        asker = Asker(workload=workload, variant=variant, charge=charge, closed=closed, bars=bars)
        search = Search(board, self.prey, asker, self.prey.permitted(reach), work=work)
        chosen = search.newest() if plain else search.cheapest()
        if chosen is None and tried:
            self._found.discard(form)
            if not self._could_fit(gang, turn):
                return None
        self._cycle.counts.victims += search.work
        if chosen is None:
            return None
        self._found.add(form)
        floor, has_quota = self._left_by(chosen, queue=workload.queue, charge=charge, bars=bars)
        spreads = self._cycle.on(floor, gang, variant).spreads
        if spreads is None or not has_quota:
            return None
        gone = evictions(chosen, beneficiary=gang.uid)
        return Chosen(gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=gone, bound=True)

    def _could_fit(self, gang: Gang, turn: Turn) -> bool:
        """Whether there is room once everyone in reach has gone."""
        floor = self._emptied(turn.reach, gang.pending.workload, turn.rank)
        return self._cycle.room(floor, gang, turn.variant) is Room.SOME

    def _left_by(
        self, chosen: Sequence[Candidate], *, queue: str, charge: Charge, bars: tuple[str, ...]
    ) -> tuple[Floor, bool]:
        """The nodes once these have gone, and whether quota bears the charge then."""
        board, later = self._board, self._board.later
        floor, credit = board.floor_behind(bars), Credit(board, bars)
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
            by_uid = {c.uid: c for c in self.prey.candidates(reach)}
            for eviction in one.evictions:
                candidate = by_uid.get(eviction.uid)
                if candidate is None or not candidate.permitted(line):
                    return False
                line.add(candidate.hold.admitted.workload.queue, candidate.hold.charge, times=-1)
        return True

    def _emptied(self, reach: Reach, workload: Workload, rank: tuple[bool, int]) -> Floor:
        """The nodes once everyone in reach has gone too."""
        board = self._board
        bars = board.bars(workload, rank=rank, bound=True)

        def floor() -> Floor:
            flags = self.prey.holds.staying(self.prey.flags(reach))
            (nodes, gone), more = self.prey.holds.vacated(flags), self.prey.holds.credited(flags, bars)
            free = board.behind(bars, board.later.free[nodes] + gone, nodes, more=more)
            return board.floor_later(workload, rank=rank).but(nodes, free)

        return self._emptied_by.of((reach, bars), floor)

    def _hope(self, gang: Gang, variant: Variant, charge: Charge, reach: Reach) -> Hope:
        """By bounds: none if it would not fit even once everyone had gone who may be evicted for it or for any gang
        that evicts in this cycle. Where nobody can be asked about all their victims, its own must be enough.
        """
        if self._excluded(gang, variant, charge, self._everyone_gone(NO_REACH), self._everyone_gone(reach)):
            return Hope.NONE
        if self._unasked() is not None:
            nobody, own = (self._own_gone(r) for r in (NO_REACH, reach))
            if self._excluded(gang, variant, charge, nobody, own):
                return Hope.OTHERS
        return Hope.SOME

    def _unasked(self) -> Deferral | None:
        contest = self._cycle.contest
        return Deferral.TIME if contest is None else contest.unasked()

    def _excluded(self, gang: Gang, variant: Variant, charge: Charge, others: Gone, gone: Gone) -> bool:
        """Whether it would not fit with these gone, and all that this cycle has settled elsewhere. `others`: the part
        of them that thousands of gangs share.
        """
        if self._beyond_root(charge, others) and self._beyond_root(charge, gone):
            return True
        if self._breaks_rows(gang.queue, charge, others) and self._breaks_rows(gang.queue, charge, gone):
            return True
        if self._fits_once_gone(gang, variant, charge, others):
            return False
        return self._cycle.excluded(self._pool(gang, charge, gone), gang, variant)

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
            gone.charged[account] = self.prey.holds.charged(account, gone.flags)
        return gone.charged[account]

    def _fits_once_gone(self, gang: Gang, variant: Variant, charge: Charge, gone: Gone) -> bool:
        """Whether nothing excludes it with these gone, nor then with more: thousands of gangs share the answer."""
        pool = self._shared_pool(gang, charge, gone)
        if pool.excludes(self._cycle.key(gang, variant), gang.pending.workload, variant):
            return False
        return self._cycle.room(pool.floor, gang, variant) is Room.SOME

    def _shared_pool(self, gang: Gang, charge: Charge, gone: Gone) -> Pool:
        """As `_pool`. Mostly who leaves was thought gone before, so one that is kept seldom changes."""
        base = self._cycle.pool(gang, charge, later=True)
        if not gone.flags.any():
            return base
        rank = self._cycle.rank_beside(gang, charge)
        bars = self._board.bars(gang.pending.workload, rank=rank, bound=True)
        shared = self._shared.of((self._cycle.lifts, bars), base.emptied, _outdated)
        if shared.gone != gone.key:
            shared.renew(base, *self.prey.holds.vacated(gone.flags))
            shared.gone = gone.key
        return shared.pool

    def _pool(self, gang: Gang, charge: Charge, gone: Gone) -> Pool:
        freed = partial(self.prey.holds.vacated, gone.flags)
        return self._cycle.pool(gang, charge, later=True, gone=gone.key, freed=freed)

    def _own_gone(self, reach: Reach) -> Gone:
        """Everyone who can go for this gang while others' victims are as they are."""

        def find() -> Gone:
            flags = self.prey.holds.flagged(c.uid for c in self.prey.permitted(reach))
            return Gone(flags, flags.tobytes())

        return self._gone.of((reach, False), find)

    def _everyone_gone(self, reach: Reach) -> Gone:
        """Everyone who could be evicted for this gang or for one that this cycle has bound, and is not yet."""
        return self._gone.of((reach, True), partial(self._find_gone, reach))

    def _find_gone(self, reach: Reach) -> Gone:
        everyone = self._everyone.of(None, lambda: Everyone(0, self.prey.flags(NO_REACH)))
        for one in islice(self._cycle.chosen.values(), everyone.seen, None):
            if one.bound:
                for turn in self._turns.get(one.gang.uid, {}).values():
                    everyone.flags |= self.prey.flags(turn.reach)
        everyone.seen = len(self._cycle.chosen)
        flags = self.prey.holds.staying(self.prey.flags(reach) | everyone.flags)
        return Gone(flags, flags.tobytes())

    def _usage_without(self, gone: Gone, binding: frozenset[Account]) -> Usage:
        """What would be used, in these accounts, with all those gone."""

        def usage() -> Usage:
            left = self._board.later.usage.copy()
            self.prey.holds.release(left, gone.flags, only=binding)
            return left

        return self._usages.of((gone.key, binding), usage)


def _outdated(shared: Emptied, _: Numbers) -> None:
    shared.gone = None


def _choice(variant: Variant) -> object:
    return (tuple(variant.flavors.items()), tuple(variant.counts.items()))

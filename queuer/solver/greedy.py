"""Settling gangs one turn at a time: flavor, size and place without eviction, then another arrangement of
what this cycle has started, then victims.

The answer of a turn is a `Chosen` or a `Refusal`; a refusal keeps what the explanation needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from queuer.domain.quota import Account, Charge, Usage
from queuer.domain.workload import Workload
from queuer.solver import victims
from queuer.solver.board import Board, Sheet
from queuer.solver.capacity import Spread, place, take
from queuer.solver.contested import Proof, Variant
from queuer.solver.floor import Floor, Found, key_of
from queuer.solver.frame import Mask, Matrix
from queuer.solver.frame import Mask as Flags
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Contest, Counts, Refusal

WORK = 60_000
"""Steps that all searches for victims of one cycle may take (see `victims.Search`)."""
NOBODY = victims.Reach((), frozenset())
REARRANGE = 4_000
"""How many placements all rearrangements of one cycle may try together."""


class Greedy:
    """Settles gangs on a board in the order in which it is asked."""

    def __init__(
        self, board: Board, *, crowded: Mapping[str, frozenset[str]] | None = None, work: int = WORK
    ) -> None:
        """`crowded`: nodes by gang uid that it shall keep off, as others are landing there. `work`: steps after which
        no victims are looked for any more in this cycle.
        """
        self.board = board
        self._work = work
        self._roomy: tuple[frozenset[str], set[object]] = (frozenset(), set())
        self._crowded = crowded or {}
        self.contest: Contest | None = None
        self.chosen: dict[str, Chosen] = {}
        self.counts = Counts()
        self._prey = victims.Prey(board)
        self._reach: dict[str, Flags] = {}
        self._sizes: dict[object, tuple[Variant, Charge]] = {}
        self._usages: tuple[int, dict[object, Usage]] = (0, {})
        self._all_gone: tuple[int, dict[victims.Reach, Flags]] = (0, {})
        self._refused: dict[object, tuple[object, Refusal]] = {}

    def turn(self, gang: Gang) -> Chosen | Refusal:
        """Settle one gang, or say what blocks it. Nothing on the board changes when it is refused."""
        key = self._likeness(gang)
        if gang.uid in self._crowded:
            return self._start_apart(gang)
        known = self._refused.get(key)
        if known is not None and known[0] == self._moment():
            return known[1]
        answer = self._start(gang)
        if isinstance(answer, Refusal) and answer.block is Block.PLACE:
            answer = self._rearrange(gang) or self._contested(gang, answer, evict=False)
        if isinstance(answer, Refusal) and answer.block is not Block.FLAVOR:
            answer = self._evict(gang, answer)
        if isinstance(answer, Refusal):
            self._refused[key] = (self._moment(), answer)
        return answer

    def _moment(self) -> object:
        """While this is the same, what is refused stays refused. Each start can put a queue above its
        guarantee and so permit new victims, where there are any.
        """
        return (self.board.epoch, len(self.chosen) if self.board.holds else 0)

    @staticmethod
    def _likeness(gang: Gang) -> object:
        workload, pending = gang.pending.workload, gang.pending
        lasts = (workload.estimate, workload.max_runtime)
        return (
            gang.shape.number,
            workload.priority,
            workload.preemptible,
            lasts,
            pending.avoid,
            pending.displaced_by,
        )

    def rank(self, gang: Gang, charge: Charge) -> tuple[bool, int]:
        """What displaces a reservation: entitled somewhere on the path, then priority."""
        workload = gang.pending.workload
        path = self.board.book.lineage(workload.queue)
        entitled = any(self.board.claimed.entitled(workload.queue, charge, at=a) for a in path)
        return (entitled, workload.priority)

    def keeps_off(self, uid: str) -> frozenset[str]:
        """Nodes on which others are landing that the gang cannot land beside."""
        return self._crowded.get(uid, frozenset())

    def waits_apart(self, uid: str) -> bool:
        """Whether the gang keeps off nodes where others are landing."""
        return uid in self._crowded

    def closed(self, gang: Gang) -> Mask | None:
        """Nodes that the gang keeps off."""
        return self.board.closed(self._avoid(gang))

    def _avoid(self, gang: Gang) -> frozenset[str]:
        return gang.pending.avoid | self.keeps_off(gang.uid)

    def _on(self, floor: Floor, gang: Gang, variant: Variant) -> Found:
        """A place for the gang on a floor."""
        return floor.place(gang.pending.workload, variant, form=gang.shape.form, avoid=self._avoid(gang))

    # Without eviction

    def _start_apart(self, gang: Gang) -> Chosen | Refusal:
        """Start, or be bound, away from others that are landing, or wait until they have landed."""
        answer = self._start(gang)
        if isinstance(answer, Chosen):
            return answer
        answer = self._evict(gang, answer)
        return replace(answer, block=Block.LANDING) if isinstance(answer, Refusal) else answer

    def _start(self, gang: Gang) -> Chosen | Refusal:
        best = Refusal(block=Block.FLAVOR)
        for variant, charge in zip(gang.shape.variants, gang.shape.charges, strict=True):
            answer = self._sized(gang, variant, charge, self._try_now)
            if isinstance(answer, Chosen):
                self.take(answer)
                return answer
            if _depth(answer) > _depth(best):
                best = answer
        return best

    def _sized(
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
        if isinstance(answer, Chosen) or all(least[name] == n for name, n in variant.counts.items()):
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

    def resized(self, gang: Gang, variant: Variant, counts: Mapping[str, int]) -> tuple[Variant, Charge]:
        """The variant at other sizes, with its charge."""
        key = (gang.shape.number, tuple(variant.flavors.values()), tuple(counts.items()))
        if key not in self._sizes:
            sized = replace(variant, counts=dict(counts))
            charge = self.board.charge(gang.pending.workload, sized.flavors, sized.counts)
            self._sizes[key] = (sized, charge)
        return self._sizes[key]

    def _try_now(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | Refusal:
        workload = gang.pending.workload
        blocked = self.quota_block(workload, variant, charge, self.board.sheets())
        if blocked is not None:
            return blocked
        board = self.board
        rank = self.rank(gang, charge) if board.horizons else (False, 0)
        found = self._on(board.floor_now(workload, rank=rank), gang, variant)
        if found.spreads is not None:
            return Chosen(gang=gang, variant=variant, charge=charge, spreads=found.spreads)
        owner = self._reserver(gang, variant, rank)
        block = Block.PLACE if owner is None else Block.RESERVED
        return Refusal(block=block, variant=variant, owner=owner, proven=found.exact)

    def would_start(self, gang: Gang, workload: Workload, variant: Variant) -> bool:
        """Whether a changed form of a waiting gang would start now, without eviction, and land for certain."""
        form, avoid = gang.shape.form, self._avoid(gang)
        if self._now_without(()).place(workload, variant, form=form, avoid=avoid).spreads is None:
            return False
        charge = self.board.charge(workload, variant.flavors, variant.counts)
        if self.quota_block(workload, variant, charge, self.board.sheets()) is not None:
            return False
        rank = self.rank(gang, charge) if self.board.horizons else (False, 0)
        floor = self.board.floor_now(workload, rank=rank)
        spreads = floor.place(workload, variant, form=form, avoid=avoid).spreads
        if spreads is None:
            return False
        crowded = self.board.awaited()
        return all(len(s) == 1 for s in spreads.values()) or all(
            crowded.isdisjoint(s) for s in spreads.values()
        )

    def quota_block(
        self, workload: Workload, variant: Variant, charge: Charge, sheets: Sequence[Sheet]
    ) -> Refusal | None:
        """What quota says against it: a row of these sheets, or that it may not borrow."""
        for sheet in sheets:
            shortfall = sheet.usage.shortfall(workload.queue, charge)
            if shortfall is not None:
                return Refusal(block=Block.QUOTA, variant=variant, shortfall=shortfall)
        if not workload.preemptible and not self.board.claimed.entitled(
            workload.queue, charge, at=workload.queue
        ):
            return Refusal(block=Block.ENTITLEMENT, variant=variant)
        return None

    def _reserver(self, gang: Gang, variant: Variant, rank: tuple[bool, int]) -> str | None:
        """The owner of the first reservation without which the gang would fit."""
        owners = self.board.bars(gang.pending.workload, rank=rank)
        if not owners or self._on(self._now_without(()), gang, variant).spreads is None:
            return None
        return owners[0]

    def lift(self, chosen: Iterable[Chosen]) -> None:
        """Take settled gangs off the board again; their victims stay."""
        for one in chosen:
            workload = one.gang.pending.workload
            if one.bound:
                self.board.unbind(workload, one.charge, one.spreads)
                for eviction in one.evictions:
                    self.board.stay(eviction.uid)
            else:
                self.board.start(workload, one.charge, one.spreads, times=-1)

    def take(self, chosen: Chosen) -> None:
        """Put a settled gang on the board."""
        workload = chosen.gang.pending.workload
        self.chosen[chosen.gang.uid] = chosen
        if chosen.bound:
            uids = [e.uid for e in chosen.evictions]
            self.board.bind(workload, chosen.charge, chosen.spreads, victims=uids)
        else:
            self.board.start(workload, chosen.charge, chosen.spreads)

    # Another arrangement of what this cycle has started

    def _rearrange(self, gang: Gang) -> Chosen | None:
        """The same gangs and sizes in other places, so that this one fits too; None = none was found."""
        started = [c for c in self.chosen.values() if not c.bound]
        if not started or self.counts.tried > REARRANGE or self.board.horizons:
            return None
        base = self._now_without(started)
        for new in self._possible(gang, started, base):
            key = self._key(gang, new.variant)
            if key in base.in_vain:
                continue
            for order in _arrangements(started, new):
                placed = self._lay_out(base.free, order)
                if placed is not None:
                    return self._adopt(started, placed, gang.uid)
            base.in_vain.add(key)
        return None

    def _possible(self, gang: Gang, started: Sequence[Chosen], base: Floor) -> list[Chosen]:
        """The gang's choices, at its smallest size, that neither quota, nor sums, nor its own place exclude.

        `base`: what is free without all that this cycle has started.
        """
        asked = self._asked(started)
        found = []
        workload = gang.pending.workload
        for full in gang.shape.variants:
            variant, charge = self.resized(gang, full, gang.shape.least)
            if self.quota_block(workload, variant, charge, self.board.sheets()) is not None:
                continue
            new = Chosen(gang=gang, variant=variant, charge=charge, spreads={})
            if self._pooled_out(base, asked, new):
                continue
            alone = self._on(base, gang, variant)
            if alone.spreads is not None or not alone.exact:
                found.append(new)
        return found

    def _contested(self, gang: Gang, refusal: Refusal, *, evict: bool) -> Chosen | Refusal:
        """Ask for an arrangement or a proof, unless a bound already excludes one."""
        started = [c for c in self.chosen.values() if not c.bound]
        movable = len(started) < len(self.chosen)  # what is bound may be laid elsewhere too
        base = self._now_without(started, held=not movable)
        possible = self._possible(gang, started, base)
        if not possible or (not self.chosen and refusal.proven):
            return replace(refusal, proven=True)
        answer = None
        if self.contest is not None:
            answer = self.contest.settle(gang, [p.variant for p in possible], evict=evict)
        if isinstance(answer, Chosen):
            return answer
        return replace(refusal, proven=isinstance(answer, Proof), contested=True)

    def _now_without(self, started: Sequence[Chosen], *, held: bool = True) -> Floor:
        """What is free now without these, none or all that have started; `held`: less what is held for bound gangs."""

        def free() -> Matrix:
            now, later = self.board.now.free, self.board.later.free
            left = np.minimum(now, later) if held else now.copy()
            for chosen in started:
                self._spend(left, chosen, times=-1)
            return left

        return self.board.floor(("without", bool(started), held), free)

    def _spend(self, free: Matrix, chosen: Chosen, *, times: int = 1) -> None:
        for pod_set in chosen.gang.pending.workload.pod_sets:
            if pod_set.name in chosen.spreads:
                take(free, self.board.frame.row(pod_set.requests), chosen.spreads[pod_set.name], times=times)

    def _asked(self, started: Sequence[Chosen]) -> dict[str, Matrix]:
        """What these ask for together, by flavor (R)."""
        asked: dict[str, Matrix] = {}
        for one in started:
            for pod_set in one.gang.pending.workload.pod_sets:
                flavor = one.variant.flavors[pod_set.name]
                row = self.board.frame.row(pod_set.requests) * one.variant.counts[pod_set.name]
                asked[flavor] = asked[flavor] + row if flavor in asked else row
        return asked

    def _pooled_out(self, base: Floor, asked: Mapping[str, Matrix], new: Chosen) -> bool:
        """Whether the sums over all nodes of a flavor already exclude it."""
        total = dict(asked)
        for flavor, row in self._asked([new]).items():
            total[flavor] = total[flavor] + row if flavor in total else row
        return any(bool((base.total(flavor) < row).any()) for flavor, row in total.items())

    def _lay_out(self, base: Matrix, order: Sequence[Chosen]) -> list[Chosen] | None:
        free = base.copy()
        placed = []
        for chosen in order:
            self.counts.tried += 1
            workload = chosen.gang.pending.workload
            closed = self.closed(chosen.gang)
            spreads = place(self.board.frame, free, workload, chosen.variant, closed=closed)
            if spreads is None:
                return None
            placed.append(replace(chosen, spreads=spreads))
            self._spend(free, placed[-1])
        return placed

    def _adopt(self, started: Sequence[Chosen], placed: Sequence[Chosen], uid: str) -> Chosen:
        for chosen in started:
            self.board.start(chosen.gang.pending.workload, chosen.charge, chosen.spreads, times=-1)
        self.board.changed()
        moved = {c.gang.uid: c for c in placed}
        for chosen in started:
            self.take(moved[chosen.gang.uid])
        self.take(moved[uid])
        self.counts.rearranged += 1
        return moved[uid]

    # With eviction

    def _evict(self, gang: Gang, refusal: Refusal) -> Chosen | Refusal:
        """Bind the gang to a place that its victims leave, at its smallest size; else the refusal."""
        unsettled: list[Variant] = []
        for full in gang.shape.variants:
            variant, charge = self.resized(gang, full, gang.shape.least)
            answer = self._with_victims(gang, variant, charge)
            if isinstance(answer, Chosen):
                self.take(answer)
                return answer
            if not answer:
                unsettled.append(variant)
        if unsettled:
            asked = self.contest.settle(gang, unsettled, evict=True) if self.contest is not None else None
            if isinstance(asked, Chosen):
                return asked
            refusal = replace(refusal, proven=refusal.proven and isinstance(asked, Proof), evictable=True)
        if not refusal.proven:
            self.counts.deferred += 1
            return replace(refusal, block=Block.DEFERRED)
        self.counts.proved += refusal.contested
        return refusal

    def _with_victims(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | bool:
        """The gang bound to a place, with the cheapest victims found; else whether it is proven that there is
        none.
        """
        board, workload = self.board, gang.pending.workload
        if not workload.preemptible and not board.claimed.entitled(workload.queue, charge, at=workload.queue):
            return True
        reach = self._prey.reach(gang.pending, charge)
        anybody = self._prey.any(reach)
        if not anybody and board.later is board.now:
            return True
        rank = self.rank(gang, charge) if board.horizons else (False, 0)
        if board.later is not board.now and board.later.usage.shortfall(workload.queue, charge) is None:
            alone = self._on(board.floor_later(workload, rank=rank), gang, variant).spreads
            if alone is not None:
                return Chosen(gang=gang, variant=variant, charge=charge, spreads=alone, bound=True)
        if not anybody or self._on(self._emptied(reach, workload, rank), gang, variant).spreads is None:
            return self._hopeless(gang, variant, charge, reach)
        if self.counts.work > self._work:
            return False
        chosen = self._search(gang, variant, charge, self._prey.candidates(reach), rank)
        if chosen is None:
            return self._hopeless(gang, variant, charge, reach)
        sheet = board.later.copy()
        for candidate in chosen:
            sheet.release(candidate.hold)
        spreads = self._placed(sheet.free, gang, variant, rank)
        if spreads is None or sheet.usage.shortfall(workload.queue, charge) is not None:
            return False
        gone = victims.evictions(chosen, beneficiary=gang.uid)
        return Chosen(gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=gone, bound=True)

    def _search(
        self,
        gang: Gang,
        variant: Variant,
        charge: Charge,
        found: Sequence[victims.Candidate],
        rank: tuple[bool, int],
    ) -> list[victims.Candidate] | None:
        """The cheapest sufficient victims that are found."""
        board, queue = self.board, gang.queue
        binding = {a: charge[a] for a in board.claimed.binding(queue, charge)}
        claims = {a: charge[a] for a in charge if a in board.book.claims(queue)}

        def fits(sheet: Sheet) -> bool:
            return (
                sheet.usage.shortfall(queue, binding) is None
                and self._placed(sheet.free, gang, variant, rank) is not None
            )

        search = victims.Search(
            board, found, _lines(found) | binding | claims, fits, work=self._work - self.counts.work
        )
        chosen = search.cheapest()
        self.counts.work += search.work
        return chosen

    def _placed(
        self, free: Matrix, gang: Gang, variant: Variant, rank: tuple[bool, int]
    ) -> dict[str, Spread] | None:
        workload = gang.pending.workload
        free = self.board.behind_horizons(free, workload, rank=rank)
        return place(self.board.frame, free, workload, variant, closed=self.closed(gang))

    def _emptied(self, reach: victims.Reach, workload: Workload, rank: tuple[bool, int]) -> Floor:
        """The nodes once everyone in reach has gone too."""

        def free() -> Matrix:
            gone = self._prey.vacated(self._prey.staying(self._prey.flags(reach)))
            return self.board.behind_horizons(self.board.later.free + gone, workload, rank=rank)

        return self.board.floor(("emptied", reach, self.board.bars(workload, rank=rank)), free)

    def _hopeless(self, gang: Gang, variant: Variant, charge: Charge, reach: victims.Reach) -> bool:
        """A bound: it would not fit even if everyone who may be evicted for anybody had gone and all that
        this cycle has settled lay elsewhere.
        """
        board, queue = self.board, gang.queue

        def free() -> Matrix:
            left = board.later.free + self._prey.vacated(self._gone(reach))
            for one in self.chosen.values():
                self._spend(left, one, times=-1)
            return left

        if not self._has_room(gang, variant, reach):
            name = ("hopeless", self._gone(reach).tobytes())
            found = self._on(board.floor(name, free), gang, variant)
            if found.spreads is None:
                return found.exact
            self._note_room(gang, variant, reach)
        binding = board.claimed.binding(queue, charge)
        if board.later.usage.shortfall(queue, {a: charge[a] for a in binding}) is None:
            return False
        usage = self._usage_without(reach, binding)
        return usage.shortfall(queue, {a: charge[a] for a in binding}) is not None

    def _has_room(self, gang: Gang, variant: Variant, reach: victims.Reach) -> bool:
        """Whether there was room for such a gang earlier in this cycle. What all could leave only grows while those who
        may evict stay the same or get more.
        """
        evictors = frozenset(uid for uid, one in self.chosen.items() if one.evictions)
        if not self._roomy[0] <= evictors:
            self._roomy = (evictors, set())
            return False
        self._roomy = (evictors, self._roomy[1])
        key, known = self._key(gang, variant), self._roomy[1]
        return (key, reach) in known or (key, NOBODY) in known

    def _note_room(self, gang: Gang, variant: Variant, reach: victims.Reach) -> None:
        self._roomy[1].add((self._key(gang, variant), reach))

    def _key(self, gang: Gang, variant: Variant) -> object:
        return key_of(gang.pending.workload, variant, form=gang.shape.form, avoid=self._avoid(gang))

    def _gone(self, reach: victims.Reach) -> Flags:
        """Everyone who could be evicted for this gang or for one that this cycle has bound, and is not yet."""
        if self._all_gone[0] != self.board.version:
            self._all_gone = (self.board.version, {})
        known = self._all_gone[1]
        if reach not in known:
            flags = self._prey.flags(reach)
            for one in self.chosen.values():
                if one.evictions:
                    flags |= self._reach_of(one)
            known[reach] = self._prey.staying(flags)
        return known[reach]

    def _usage_without(self, reach: victims.Reach, binding: frozenset[Account]) -> Usage:
        """What would be used, in these accounts, with all those gone."""
        if self._usages[0] != self.board.version:
            self._usages = (self.board.version, {})
        known = self._usages[1]
        gone = self._gone(reach)
        key = (gone.tobytes(), binding)
        if key not in known:
            known[key] = self.board.later.usage.copy()
            self._prey.release(known[key], gone, only=binding)
        return known[key]

    def _reach_of(self, one: Chosen) -> Flags:
        """Everyone whom a bound gang could evict, those it does included."""
        if one.gang.uid not in self._reach:
            reach = self._prey.reach(one.gang.pending, one.charge)
            self._reach[one.gang.uid] = self._prey.flags(reach)
        return self._reach[one.gang.uid]


def _lines(found: Sequence[victims.Candidate]) -> dict[Account, int]:
    """The accounts that the permission of any of these depends on."""
    return {account: 0 for c in found for account, _ in c.lines or ()}


def _depth(refusal: Refusal) -> int:
    """How far a variant came: the most telling refusal is explained."""
    return (
        Block.FLAVOR,
        Block.ENTITLEMENT,
        Block.QUOTA,
        Block.LANDING,
        Block.RESERVED,
        Block.PLACE,
        Block.DEFERRED,
    ).index(refusal.block)


def _arrangements(started: Sequence[Chosen], new: Chosen) -> list[list[Chosen]]:
    """Sequences of placement: the new one first, the large first, those with a required level first."""
    everyone = [*started, new]

    def size(chosen: Chosen) -> int:
        return sum(chosen.variant.counts.values())

    return [
        [new, *started],
        sorted(everyone, key=lambda c: (-size(c), c.gang.uid)),
        [new, *sorted(started, key=lambda c: (-size(c), c.gang.uid))],
        sorted(everyone, key=lambda c: (c.gang.pending.workload.required is None, -size(c), c.gang.uid)),
    ]

"""What would let a waiting gang start now, without an eviction: changes that were tried, not guessed.

Tried on the state at the end of the cycle: a wider or no topology level, fewer pods in the largest pod set; for work
outside its guarantee that is not preemptible, to be so, or a larger guarantee. Where a change gives no place, it gives
none to any gang that placement cannot tell apart; only what is left is tried in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, takewhile
from typing import Any

from queuer.domain.quantity import format_quantity
from queuer.domain.queue import Order
from queuer.domain.quota import Account, Charge
from queuer.domain.workload import PodSet, Workload
from queuer.solver import floors
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle
from queuer.solver.explain.beside import Beside
from queuer.solver.explain.place import Fit, PlaceWords
from queuer.solver.explain.quota import QuotaWords
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.parts import Spread

TRIES = 4_000
"""How many changes may be tried in full in one cycle."""
LOOKUPS = 64_000
"""How many places of several pod sets may be looked for in one cycle, times nodes."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Changes that give a place as far as nodes go. `wider`: levels, None = any. `fewer`: variant, set, most pods."""

    wider: tuple[str | None, ...]
    fewer: tuple[tuple[Variant, str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A gang with another level, at these flavors. `entitled`: were it inside its guarantee, or free to borrow."""

    gang: Gang
    variant: Variant
    required: str | None
    entitled: bool = False


class Advisor:
    """Tries changes on the board of one cycle. `standing`: uids of those with a reservation of earlier cycles."""

    def __init__(self, cycle: Cycle, quota: QuotaWords, place: PlaceWords) -> None:
        self._cycle = cycle
        self._board = cycle.board
        self._beside = Beside(cycle)
        self._quota = quota
        self._place = place
        self._levels = self._board.snapshot.topology.levels
        self._options: dict[object, _Options] = {}
        self._charges: dict[object, Charge] = {}
        self._places: dict[object, Chosen | None] = {}
        self._landing: dict[object, bool] = {}
        self._apart = cycle.apart
        self.standing = frozenset(one.uid for one in self._board.snapshot.reservations)
        self._lookups = LOOKUPS // max(1, len(self._board.frame.names))
        self._tries = TRIES

    def would_admit(self, gang: Gang) -> tuple[Mapping[str, Any], ...]:
        """Single changes after which the gang starts, each `{"change": …, "evictions": 0}`."""
        changes = self._changes(gang, self._possible(gang))
        return tuple({"change": change, "evictions": 0} for change in changes)

    def would_entitle(self, gang: Gang, variant: Variant, charge: Charge) -> tuple[Mapping[str, Any], ...]:
        """The same for a gang outside its guarantee that is not preemptible, at its smallest size: to borrow as
        preemptible work, or what its queue's guarantee would have to be.
        """
        found = self.would_admit(gang) if self.has_options(gang) else ()
        inside = _Change(gang=gang, variant=variant, required=gang.pending.workload.required, entitled=True)
        changes: list[str] = []
        if self._starts(inside, gang.shape.least, most=_full(gang)):
            changes.append("preemptible=true")
        if self._starts(inside, gang.shape.least):
            changes += self._guarantees(gang, charge)
        return (*found, *({"change": change, "evictions": 0} for change in changes))

    def _guarantees(self, gang: Gang, charge: Charge) -> Iterator[str]:
        """The least guarantees with which its queue is entitled to the charge, where the tree would take them and no
        other gang of the queue would have them first.
        """
        book, claimed, queue = self._board.book, self._board.claimed, gang.queue
        if self.waits_behind(gang):
            return
        claims = [a for a in charge if a in book.claims(queue)]
        short = {a: claimed.used(queue, a) + charge[a] for a in claims or self._dominant(charge)}
        short = {a: amount for a, amount in short.items() if amount > book.guaranteed(queue, a)}
        if short and all(self._granted(queue, account, amount) for account, amount in short.items()):
            rows = (
                f"{_named(account)}>={format_quantity(amount, resource=account[1])}"
                for account, amount in short.items()
            )
            yield f"{queue} guaranteed {', '.join(rows)}"

    def waits_behind(self, gang: Gang) -> bool:
        """Whether another gang of its queue would have a larger guarantee first: it waits and has its turn before (in a
        packed queue, might have), or holds a reservation, or has started smaller for want of it. Who is bound since an
        earlier cycle has its place, and its quota counts.
        """
        offers, queue = self._board.arrays.offers, gang.queue
        if queue in self._short:
            return True
        settled = self._cycle.chosen.keys() | self._board.bound.keys()
        packed = self._board.book.tree.policy(queue).order is Order.PACKED
        line = (one.uid for one in takewhile(lambda one: packed or one is not gang, offers.lines[queue]))
        held = (uid for uid in self._board.horizons if uid != gang.uid and offers.gangs[uid].queue == queue)
        return any(uid not in settled and uid != gang.uid for uid in chain(line, held))

    @cached_property
    def _short(self) -> Set[str]:
        """Queues in which work that may not borrow has started otherwise than it asked to."""
        settled = self._cycle.chosen.values()
        confined = (one for one in settled if not one.gang.pending.workload.preemptible)
        return {one.gang.queue for one in confined if one.variant != one.gang.shape.variants[0]}

    def _dominant(self, charge: Charge) -> list[Account]:
        """What it asks most of, of all there is; nothing if it asks for nothing."""
        live = self._board.book.live
        asked = [a for a in charge if a[0] is None and live.get(a)]
        return [max(asked, key=lambda a: (charge[a] / live[a], a[1]))] if asked else []

    def _granted(self, queue: str, account: Account, amount: int) -> bool:
        """Whether its own limit and the nearest queue above that states a guarantee leave that much for it."""
        book = self._board.book
        limit, more = book.limit(queue, account), amount - book.guaranteed(queue, account)
        if limit is not None and amount > limit:
            return False
        for path in book.lineage(queue)[1:]:
            row = next((r for r in book.tree[path].quota if (r.flavor, r.resource) == account), None)
            if row is not None and row.guaranteed is not None:
                given = sum(book.guaranteed(kid, account) for kid in book.tree.children[path])
                return given + more <= row.guaranteed
        return True

    def has_options(self, gang: Gang) -> bool:
        """Whether anything is worth trying in full."""
        options = self._possible(gang)
        return bool(options.wider or options.fewer)

    def _changes(self, gang: Gang, options: _Options) -> Iterator[str]:
        shape, required, full = gang.shape, gang.pending.workload.required, _full(gang)
        for level in options.wider:
            wider = (_Change(gang=gang, variant=v, required=level) for v in shape.variants)
            if any(self._starts(change, shape.least, most=full) for change in wider):
                yield f"topology={level or 'any'}"
                break
        for variant, name, most in options.fewer:
            change = _Change(gang=gang, variant=variant, required=required)

            def starts(count: int, change: _Change = change, name: str = name) -> bool:
                return self._starts(change, {**shape.least, name: count}, most={**full, name: count})

            if not self._fits_quota(gang, variant, {**shape.least, name: 1}):
                continue
            count = most if starts(most) else _bisect(most - 1, starts)
            if count:
                yield f"{name}.count<={count}"
                return

    def _starts(
        self, change: _Change, counts: Mapping[str, int], *, most: Mapping[str, int] | None = None
    ) -> bool:
        """Whether it would start now at this size, without eviction, and land for certain. `most`: it grows up to that,
        as at its turn.
        """
        found = self._placed(change, counts)
        if found is not None and most is not None:
            found = self._grown(change, found, most)
        if found is None:
            return False
        if found not in self._landing:
            self._landing[found] = self._beside.lands(found)
        return self._landing[found]

    def _grown(self, change: _Change, least: Chosen, most: Mapping[str, int]) -> Chosen | None:
        """The largest size that fits (see `Greedy.sized`)."""
        counts = dict(least.variant.counts)
        if counts == most:
            return least
        if (full := self._placed(change, most)) is not None:
            return full
        for name, largest in most.items():
            counts[name] = self._largest(change, counts, name, largest)
        return self._placed(change, counts)

    def _largest(self, change: _Change, counts: Mapping[str, int], name: str, most: int) -> int:
        """How many pods of a set fit beside the others."""

        def fits(more: int) -> bool:
            return self._placed(change, {**counts, name: counts[name] + more}) is not None

        return counts[name] + _bisect(most - counts[name], fits)

    def _placed(self, change: _Change, counts: Mapping[str, int]) -> Chosen | None:
        """Where it would start now at this size, without eviction."""
        self._tries -= 1
        gang, variant, workload = change.gang, change.variant, change.gang.pending.workload
        if self._tries < 0 or not self._fits_quota(gang, variant, counts):
            return None
        kind = self._kind(gang, variant, counts)
        charge = self._charges[kind]
        inside = change.entitled or workload.preemptible
        if not (inside or self._board.claimed.entitled(gang.queue, charge, at=gang.queue)):
            return None
        rank = (False, 0)
        if self._board.horizons or self._board.former:
            rank = self._cycle.rank(gang, charge)
        avoid = gang.pending.avoid | self._cycle.keeps_off(gang.uid)
        ended = tuple(
            i for i, h in enumerate(self._board.former) if self._board.binds(h, workload, rank=rank)
        )
        key = (kind, change.required, avoid, self._board.bars(workload, rank=rank), ended)
        if key not in self._places:
            asks = replace(workload, required=change.required)
            sized, floor = replace(variant, counts=counts), floors.now(self._board, asks, rank=rank)
            spreads = floor.place(asks, sized, form=gang.shape.form, avoid=avoid).spreads
            found = None
            if spreads is not None and not self._were_kept(spreads, ended):
                asking = replace(gang, pending=replace(gang.pending, workload=asks))
                found = Chosen(gang=asking, variant=sized, charge=charge, spreads=spreads)
            self._places[key] = found
        return self._places[key]

    def _were_kept(self, spreads: Mapping[str, Spread], ended: Iterable[int]) -> bool:
        """Whether any of these nodes was reserved by one of these that have ended: at its turn, perhaps."""
        nodes = {node for spread in spreads.values() for node in spread}
        return not all(self._board.former[i].nodes.isdisjoint(nodes) for i in ended)

    def is_unsure(self, gang: Gang, *, before: Set[str]) -> bool:
        """Whether those before it might have what it is offered. That of a gang with a standing reservation would lie
        elsewhere if the gang were changed, and so might all who have had their turns on its flavors. And where gangs
        keep off each other as they land, one more might have to keep off, too. `before`: flavors of those before it
        whom nodes kept from starting.
        """
        if self._apart:
            return True
        if gang.uid not in self.standing:
            return False
        gangs, flavors = self._board.arrays.offers.gangs, gang.shape.flavors
        beside = [gangs[uid] for uid in self.standing - {gang.uid} if uid in gangs]
        beside += [one.gang for one in self._cycle.chosen.values()]
        return not flavors.isdisjoint(before) or any(flavors & one.shape.flavors for one in beside)

    @staticmethod
    def _kind(gang: Gang, variant: Variant, counts: Mapping[str, int]) -> object:
        """Equal for what asks for the same of the same flavors, whatever its queue."""
        return (gang.shape.form, tuple(variant.flavors.values()), tuple(counts.values()))

    def _fits_quota(self, gang: Gang, variant: Variant, counts: Mapping[str, int]) -> bool:
        kind = self._kind(gang, variant, counts)
        if kind not in self._charges:
            self._charges[kind] = self._board.charge(gang.pending.workload, variant.flavors, counts)
        return self._quota.fits(gang.queue, self._charges[kind], kind=kind)

    # As far as nodes go

    def _possible(self, gang: Gang) -> _Options:
        """Equal for gangs that placement cannot tell apart."""
        key = (gang.shape.choice, gang.pending.avoid)
        if key not in self._options:
            self._options[key] = _Options(tuple(self._wider(gang)), tuple(self._fewer(gang)))
        return self._options[key]

    def _wider(self, gang: Gang) -> Iterator[str | None]:
        workload = gang.pending.workload
        if workload.required is None:
            return
        at = self._board.snapshot.topology.find(workload.required) or 0
        for level in (*reversed(self._levels[:at]), None):
            wider = replace(workload, required=level)
            if any(self._fits(gang, wider, _least(gang, v)) for v in gang.shape.variants):
                yield level

    def _fewer(self, gang: Gang) -> Iterator[tuple[Variant, str, int]]:
        workload, least = gang.pending.workload, gang.shape.least
        largest: PodSet = max(workload.pod_sets, key=lambda p: least[p.name])
        for variant in gang.shape.variants:
            most = self._most_that_fit(gang, _least(gang, variant), largest.name)
            if most:
                yield variant, largest.name, most

    def _most_that_fit(self, gang: Gang, variant: Variant, name: str) -> int:
        workload, most = gang.pending.workload, variant.counts[name] - 1
        if len(workload.pod_sets) == 1:
            closest = self._place.closest(workload, variant, gang.pending.avoid)
            return 0 if closest is None else min(most, closest.most)

        def fits(count: int) -> bool:
            return self._fits(gang, workload, replace(variant, counts={**variant.counts, name: count}))

        return _bisect(most, fits)

    def _fits(self, gang: Gang, workload: Workload, variant: Variant) -> bool:
        if len(workload.pod_sets) > 1:
            self._lookups -= 1
        return self._lookups >= 0 and Fit.YES is self._place.fits(
            workload, variant, gang.pending.avoid, form=gang.shape.form
        )


def _named(account: Account) -> str:
    flavor, resource = account
    return resource if flavor is None else f"{resource} on {flavor}"


def _full(gang: Gang) -> Mapping[str, int]:
    return {p.name: p.count for p in gang.pending.workload.pod_sets}


def _least(gang: Gang, variant: Variant) -> Variant:
    return replace(variant, counts=dict(gang.shape.least))


def _bisect(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` for which it holds, as it does for all smaller ones; 0 = none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low

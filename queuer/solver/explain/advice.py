"""What would let a waiting gang start now, without an eviction: changes that were tried, not guessed.

Tried on the state at the end of the cycle: a wider or no topology level, fewer pods in the largest pod set; for work
outside its guarantee that is not preemptible, to be so, or a larger guarantee. Where a change gives no place, it gives
none to any gang that placement cannot tell apart; only what is left is tried in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any

from queuer.domain.quantity import format_quantity
from queuer.domain.quota import Account, Charge
from queuer.domain.workload import PodSet, Workload
from queuer.solver.capacity import Spread
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle
from queuer.solver.explain.beside import Beside
from queuer.solver.explain.place import PlaceWords
from queuer.solver.explain.quota import QuotaWords
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen

TRIES = 4_000
"""How many changes may be tried in full in one cycle."""
LOOKUPS = 64_000
"""How many places of several pod sets may be looked for in one cycle, times nodes."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Changes that give a place as far as nodes go. `wider`: levels, None = any. `fewer`: variant, set, most pods."""

    wider: tuple[str | None, ...]
    fewer: tuple[tuple[Variant, str, int], ...]


class Advisor:
    """Tries changes on the board of one cycle."""

    def __init__(self, cycle: Cycle, quota: QuotaWords, place: PlaceWords) -> None:
        self._cycle = cycle
        self._board = cycle.board
        self._beside = Beside(cycle)
        self._quota = quota
        self._place = place
        self._levels = self._board.snapshot.topology.levels
        self._options: dict[object, _Options] = {}
        self._charges: dict[object, Charge] = {}
        self._landing: dict[object, bool] = {}
        self._standing = frozenset(one.uid for one in self._board.snapshot.reservations)
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
        workload, shape = gang.pending.workload, gang.shape
        full = {p.name: p.count for p in workload.pod_sets}  # what it takes where it may borrow
        changes: list[str] = []
        if self._starts(gang, variant, full, required=workload.required, entitled=True):
            changes.append("preemptible=true")
        if self._starts(gang, variant, shape.least, required=workload.required, entitled=True):
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
        short = {a: claimed.used(queue, a) + charge[a] for a in claims or [self._dominant(charge)]}
        short = {a: amount for a, amount in short.items() if amount > book.guaranteed(queue, a)}
        if short and all(self._granted(queue, account, amount) for account, amount in short.items()):
            rows = (
                f"{_named(account)}>={format_quantity(amount, resource=account[1])}"
                for account, amount in short.items()
            )
            yield f"{queue} guaranteed {', '.join(rows)}"

    def waits_behind(self, gang: Gang) -> bool:
        """Whether another gang of its queue waits that has its turn before, or holds a reservation. Who is bound since
        an earlier cycle has its place, and its quota counts.
        """
        offers, queue = self._board.arrays.offers, gang.queue
        settled = self._cycle.chosen.keys() | self._board.bound.keys()
        before = (one.uid for one in takewhile(lambda one: one is not gang, offers.lines[queue]))
        held = (uid for uid in self._board.horizons if uid != gang.uid and offers.gangs[uid].queue == queue)
        return any(uid not in settled for uid in chain(before, held))

    def _dominant(self, charge: Charge) -> Account:
        """What it asks most of, of all there is."""
        live = self._board.book.live
        asked = [a for a in charge if a[0] is None and live.get(a)]
        return max(asked, key=lambda a: (charge[a] / live[a], a[1]))

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
        shape, required = gang.shape, gang.pending.workload.required
        for level in options.wider:
            if any(self._starts(gang, v, shape.least, required=level) for v in shape.variants):
                yield f"topology={level or 'any'}"
                break
        for variant, name, most in options.fewer:

            def starts(count: int, variant: Variant = variant, name: str = name) -> bool:
                return self._starts(gang, variant, {**shape.least, name: count}, required=required)

            if not self._fits_quota(gang, variant, {**shape.least, name: 1}):
                continue
            count = most if starts(most) else _bisect(most - 1, starts)
            if count:
                yield f"{name}.count<={count}"
                return

    def _starts(
        self,
        gang: Gang,
        variant: Variant,
        counts: Mapping[str, int],
        *,
        required: str | None,
        entitled: bool = False,
    ) -> bool:
        """Whether it would start now at these flavors, sizes and level, without eviction, and land for certain.
        `entitled`: were it inside its guarantee, or free to borrow.
        """
        self._tries -= 1
        if self._tries < 0:
            return False
        workload = gang.pending.workload
        if not self._fits_quota(gang, variant, counts):
            return False
        kind = self._kind(gang, variant, counts)
        charge = self._charges[kind]
        outside = not (entitled or workload.preemptible)
        if outside and not self._board.claimed.entitled(gang.queue, charge, at=gang.queue):
            return False
        rank = (False, 0)
        if self._board.horizons or self._board.former:
            rank = (self._quota.entitled(gang.queue, charge), workload.priority)
        avoid = gang.pending.avoid | self._cycle.keeps_off(gang.uid)
        ended = tuple(
            i for i, h in enumerate(self._board.former) if self._board.binds(h, workload, rank=rank)
        )
        key = (kind, required, avoid, self._board.bars(workload, rank=rank), ended)
        if key not in self._landing:
            changed = replace(workload, required=required)
            floor = self._board.floor_now(changed, rank=rank)
            sized = replace(variant, counts=counts)
            spreads = floor.place(changed, sized, form=gang.shape.form, avoid=avoid).spreads
            self._landing[key] = (
                spreads is not None
                and not self._were_kept(spreads, ended)
                and self._beside.lands(
                    Chosen(
                        gang=replace(gang, pending=replace(gang.pending, workload=changed)),
                        variant=sized,
                        charge=charge,
                        spreads=spreads,
                    )
                )
            )
        return self._landing[key]

    def _were_kept(self, spreads: Mapping[str, Spread], ended: Iterable[int]) -> bool:
        """Whether any of these nodes was reserved by one of these that have ended: at its turn, perhaps."""
        nodes = {node for spread in spreads.values() for node in spread}
        return not all(self._board.former[i].nodes.isdisjoint(nodes) for i in ended)

    def is_unsure(self, gang: Gang, *, others: bool) -> bool:
        """Whether others could have what a gang with a standing reservation is offered: changed, it would have another
        reservation, and not all places and refusals before its turn be what they were. `others`: somebody before it was
        refused for a reservation.
        """
        if gang.uid not in self._standing:
            return False
        gangs = self._board.arrays.offers.gangs
        beside = (gangs[uid] for uid in self._standing - {gang.uid} if uid in gangs)
        evicts = any(one.bound and one.evictions for one in self._cycle.chosen.values())
        return others or evicts or any(gang.shape.flavors & one.shape.flavors for one in beside)

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
        shape, avoid = gang.shape, gang.pending.avoid
        key = (shape.form, tuple([tuple(v.flavors.values()) for v in shape.variants]), avoid)
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
        return self._lookups >= 0 and self._place.fits(
            workload, variant, gang.pending.avoid, form=gang.shape.form
        )


def _named(account: Account) -> str:
    flavor, resource = account
    return resource if flavor is None else f"{resource} on {flavor}"


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

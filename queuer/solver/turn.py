"""A gang's turn: the first allowed flavor order, at its largest size, in which it has a placement; else victims.

Without evictions free capacity only shrinks within a cycle, so what was refused once is not tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from queuer.domain.quota import Charge, charge_for
from queuer.solver.nodes import Mask
from queuer.solver.placement import Part, Spreads, Variant, parts_of, place
from queuer.solver.refusal import Block, Refusal
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State, View
from queuer.solver.victims import Victims

DEPTH = {block: depth for depth, block in enumerate(Block)}
BINDINGS = 32
"""Gangs that are bound to what victims leave in one cycle, at most."""
SEARCHES = 64
"""Times that victims are looked for in one cycle, at most."""


class Turns:
    """The turns of one cycle. `refusals`: of all that were refused, by uid; `kept`: who fits once others have landed;
    `more`: whether a limit left somebody out.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._victims = Victims(state)
        self._dead: dict[object, Refusal] = {}
        self._nowhere: dict[object, tuple[str, ...]] = {}  # with those for whom room is held that it needs
        self._leaves_bound: set[str] = set()
        self._full: dict[int, Refusal] = {}  # by number of a shape with one choice of flavors
        self._known_parts: dict[object, Sequence[Part] | None] = {}
        self.refusals: dict[str, Refusal] = {}
        self.turns = 0
        self.more = False

    @property
    def searches(self) -> int:
        """How often victims were looked for."""
        return self._victims.searches

    def refused(self, gang: Gang) -> bool:
        """Whether it is known without a turn that the gang neither starts nor evicts anybody."""
        key = self._key(gang) if self._state.reserved else gang.likeness
        known = self._dead.get(key)
        if known is None:
            known = self._hopeless(gang)
            if known is None or self._may_evict(gang):
                return False
            self._dead[key] = known
        self.refusals[gang.uid] = known
        return True

    def turn(self, gang: Gang) -> bool:
        """Settle the gang in the state, or refuse it. Answers whether it is settled."""
        self.turns += 1
        answer = self._start(gang)
        if isinstance(answer, Refusal) and answer.block not in (Block.FLAVOR, Block.LANDING):
            answer = self._evict(gang) or answer
        if isinstance(answer, Settled):
            self._state.release(gang.uid)
            return True
        self._keep(gang, answer)
        self._dead[self._key(gang)] = self.refusals[gang.uid] = answer
        return False

    def tried(self, gang: Gang) -> Settled | None:
        """As `turn`, for who undoes it: nobody is evicted, and reservations stay."""
        if self.refused(gang):
            return None
        answer = self._start(gang)
        if isinstance(answer, Settled):
            return answer
        self._keep(gang, answer)
        self._dead[self._key(gang)] = answer
        return None

    def _keep(self, gang: Gang, refusal: Refusal) -> None:
        """Who fits but for what is still landing keeps that placement till the end of the cycle."""
        if refusal.block is Block.LANDING:
            assert refusal.variant is not None
            assert refusal.charge is not None
            self._state.keep(
                Settled(gang=gang, variant=refusal.variant, charge=refusal.charge, spreads=refusal.landed)
            )

    def _key(self, gang: Gang) -> object:
        """Equal for gangs that get the same answer; of how long they run counts which reservations they outlive."""
        state = self._state
        if gang.uid in state.reserved:
            return gang.uid
        return (gang.likeness, state.outlived(gang.workload)) if state.reserved else gang.likeness

    # Without eviction

    def _start(self, gang: Gang) -> Settled | Refusal:
        refused: list[Refusal] = []
        for variant, charge in zip(gang.shape.variants, gang.shape.charges, strict=True):
            answer = self._sized(gang, variant, charge)
            if isinstance(answer, Settled):
                self._state.start(answer)
                return answer
            refused.append(answer)
        return deepest(refused)

    def _sized(self, gang: Gang, variant: Variant, charge: Charge) -> Settled | Refusal:
        """The largest size that fits: full, else the smallest with each pod set in turn grown as far as it goes."""
        answer = self._try(gang, variant, charge)
        least = {p.name: p.count if p.min_count is None else p.min_count for p in gang.workload.pod_sets}
        if isinstance(answer, Settled) or variant.counts == least:
            return answer
        best = self._at(gang, variant, least)
        for name, most in variant.counts.items() if isinstance(best, Settled) else ():
            low, high = least[name], most
            while low < high:
                middle = (low + high + 1) // 2
                got = self._at(gang, variant, {**least, name: middle})
                if isinstance(got, Settled):
                    low, best = middle, got
                else:
                    high = middle - 1
            least[name] = low
        return best

    def _at(self, gang: Gang, variant: Variant, counts: dict[str, int]) -> Settled | Refusal:
        sized = replace(variant, counts=counts)
        return self._try(gang, sized, charge_for(gang.workload, sized.flavors, counts))

    def _try(self, gang: Gang, variant: Variant, charge: Charge) -> Settled | Refusal:
        """Start at this size on these flavors, if quota and nodes bear it."""
        state = self._state
        blocked = self._quota(gang, variant, charge)
        if blocked is not None:
            return blocked
        respected = state.respected(gang, charge)
        form = self._placement_key(gang, variant, respected)
        spreads = self._spreads(gang, variant, respected) if form not in self._nowhere else None
        if spreads is not None:
            return Settled(gang=gang, variant=variant, charge=charge, spreads=spreads)
        self._nowhere[form] = ()
        refusal = Refusal(block=Block.PLACE, variant=variant, charge=charge, cycle=bool(state.settled))
        spreads, owners = self._landed(gang, variant, respected)
        if spreads is not None:
            self._nowhere[form] = (gang.uid,)
            return refusal._replace(block=Block.LANDING, owners=owners, landed=spreads)
        if respected and self._free_but_reserved(gang, variant):
            return refusal._replace(block=Block.RESERVED, owners=respected)
        self._nowhere[form] = self._holders(gang, variant, respected)
        return refusal._replace(owners=self._nowhere[form])

    def _free_but_reserved(self, gang: Gang, variant: Variant) -> bool:
        """Whether it would fit, were there no reservations."""
        if self._placement_key(gang, variant, ()) in self._nowhere:
            return False
        return self._spreads(gang, variant, ()) is not None

    def _spreads(self, gang: Gang, variant: Variant, respected: tuple[str, ...]) -> Spreads | None:
        """A placement that keeps the landing rule, if there is one."""
        landing, workload = self._state.landing, gang.shape.like
        room, closed = self._state.room(respected), self._state.closed(gang)
        parts = self._parts(gang, variant)
        spreads = place(room, workload, parts, closed=closed)
        if spreads is None or landing.may_start(workload, variant.flavors, spreads):
            return spreads
        spreads = place(room, workload, parts, closed=self._busy(closed))
        lands = spreads is not None and landing.may_start(workload, variant.flavors, spreads)
        return spreads if lands else None

    def _busy(self, closed: Mask | None) -> Mask:
        """Nodes that are closed to a gang with a choice among them."""
        busy = self._state.landing.here | self._state.landing.held
        return busy if closed is None else busy | closed

    def _landed(
        self, gang: Gang, variant: Variant, respected: tuple[str, ...]
    ) -> tuple[Spreads | None, tuple[str, ...]]:
        """Where the gang fits once all pods have landed, and whose pods these are."""
        landing, workload = self._state.landing, gang.shape.like
        if not landing.here.any():
            return None, ()
        room, closed = self._state.room(respected, View.LANDED), self._state.closed(gang)
        parts = self._parts(gang, variant)
        spreads = place(room, workload, parts, closed=closed)
        if spreads and landing.holders(landing.choices(workload, variant.flavors, spreads)):
            held = landing.held if closed is None else landing.held | closed
            spreads = place(room, workload, parts, closed=held)
        owners = landing.on(sorted(chain.from_iterable(spreads.values()))) if spreads else []
        return (spreads if owners else None), tuple(owners)

    def _holders(self, gang: Gang, variant: Variant, respected: tuple[str, ...]) -> tuple[str, ...]:
        """For whom room is held on hosts where the gang would fit, were there none; none where it would not."""
        landing = self._state.landing
        if not landing.held.any():
            return ()
        room = self._state.room(respected, View.UNHELD)
        spreads = place(room, gang.shape.like, self._parts(gang, variant), closed=self._state.closed(gang))
        return tuple(landing.holders(sorted(chain.from_iterable(spreads.values())))) if spreads else ()

    def _parts(self, gang: Gang, variant: Variant) -> Sequence[Part] | None:
        key = (gang.shape.form, tuple(variant.counts.values()), tuple(variant.flavors.values()))
        if key not in self._known_parts:
            self._known_parts[key] = parts_of(self._state.nodes, gang.shape.like, variant)
        return self._known_parts[key]

    def _placement_key(self, gang: Gang, variant: Variant, respected: tuple[str, ...]) -> object:
        """Equal for gangs that placement cannot tell apart, whatever their queues."""
        counts, flavors = tuple(variant.counts.values()), tuple(variant.flavors.values())
        return (gang.shape.form, counts, flavors, gang.pending.avoid, respected)

    def _quota(self, gang: Gang, variant: Variant, charge: Charge) -> Refusal | None:
        """The limit in its way, or that it may not borrow."""
        state = self._state
        for usage in state.usages():
            bar = usage.bar(gang.queue, charge)
            if bar is not None:
                return Refusal(
                    block=Block.QUOTA, variant=variant, charge=charge, bar=bar, cycle=bool(state.settled)
                )
        if not gang.workload.preemptible and not state.claimed.entitled(gang.queue, charge, at=gang.queue):
            return Refusal(block=Block.ENTITLEMENT, variant=variant, charge=charge)
        return None

    def _hopeless(self, gang: Gang) -> Refusal | None:
        """Why it cannot start, if that is known without a look for a placement: at its smallest size, on no flavor."""
        known = self._full.get(gang.shape.number)
        if known is not None:
            return known
        refused: list[Refusal] = []
        for variant, charge in gang.shape.least:
            blocked = self._quota(gang, variant, charge)
            if blocked is None:
                respected = self._state.respected(gang, charge)
                owners = self._nowhere.get(self._placement_key(gang, variant, respected))
                if owners is None:
                    return None
                blocked = Refusal(
                    block=Block.PLACE, variant=variant, charge=charge, owners=owners, cycle=True
                )
            refused.append(blocked)
        found = deepest(refused)
        if found.block is Block.QUOTA and len(refused) == 1:
            self._full[gang.shape.number] = found
        return found

    # With eviction

    def _may_evict(self, gang: Gang) -> bool:
        """Whether victims are still to be looked for: a leaf binds one gang a cycle, all together `BINDINGS`."""
        left_out = (
            gang.queue in self._leaves_bound
            or self.searches >= SEARCHES
            or len(self._leaves_bound) >= BINDINGS
        )
        if left_out and self.more:
            return False
        somebody = self._victims.anybody(gang)
        self.more |= somebody and left_out
        return somebody and not left_out

    def _evict(self, gang: Gang) -> Settled | None:
        """Bind the gang to what the cheapest victims leave, on its first flavors that can be had so."""
        for variant, charge in gang.shape.least if self._may_evict(gang) else ():
            settled = self._victims.bound(gang, variant, charge, self._parts(gang, variant))
            if settled is not None:
                self._state.bind(settled)
                self._leaves_bound.add(gang.queue)
                return settled
        return None


def deepest(refused: Sequence[Refusal]) -> Refusal:
    """What came farthest; none = there was no flavor."""
    return max(refused, key=lambda r: DEPTH[r.block], default=Refusal(block=Block.FLAVOR))

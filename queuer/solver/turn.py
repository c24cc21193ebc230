"""A gang's turn: the largest size that has a placement, on the first flavors that have it; else lifting; else victims.

Without evictions and lifts free capacity only shrinks within a cycle, so what was refused once is not tried again.
After a lift everything is, in another round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from queuer.domain.quota import Charge, charge_for
from queuer.solver.cpsat import CpSat
from queuer.solver.eviction.candidates import Seeker
from queuer.solver.eviction.lifting import Lifting
from queuer.solver.eviction.rights import GangRights
from queuer.solver.eviction.search import Victims
from queuer.solver.placement import Part, Spreads, Variant, parts_of, place
from queuer.solver.refusal import Block, Refusal
from queuer.solver.repair.decode import can_start
from queuer.solver.reserve import Reserver
from queuer.solver.shapes import Gang
from queuer.solver.slots import View
from queuer.solver.state import Settled, State

Choice = tuple[Variant, Charge]
"""Flavors and sizes, and what they charge."""
DEPTH = {block: depth for depth, block in enumerate(Block)}
BINDINGS = 32
"""Leaves in which gangs are bound to what victims leave in one cycle, at most."""
AHEAD = 16
"""Gangs behind one that evicts which are asked whether they would look for the same victims."""
SEARCHES = 64
"""Times that victims are looked for in one cycle, at most."""


class Turns:
    """Of one cycle. `refusals`: of all that were refused, by uid; `has_lifted`: whether a turn undid a start;
    `put_back`: uids of starts left after all, which come after that turn; `more`: whether a limit left somebody out.
    """

    def __init__(
        self, state: State, reserver: Reserver | None = None, *, solver: CpSat | None = None
    ) -> None:
        """`reserver`: reserves for gangs that capacity alone blocks, at their turn. `solver`: chooses victims."""
        self._state, self._reserver = state, reserver
        self.victims = Victims(state, solver or CpSat(0.0))
        self._rights = self.victims.rights
        self._lifting = Lifting(state, self._rights)
        self._dead: dict[object, Refusal] = {}
        self._nowhere: dict[object, tuple[str, ...]] = {}  # with those for whom room is held that it needs
        self._leaves_bound: set[str] = set()
        self._full: dict[int, Refusal] = {}  # by number of a shape with one choice of flavors
        self._known_parts: dict[object, Sequence[Part] | None] = {}
        self.refusals: dict[str, Refusal] = {}
        self.has_lifted, self.more = False, False
        self.put_back: list[str] = []
        self._again, self._refused = False, list[Gang]()  # of those with one answer a single one

    def refused(self, gang: Gang) -> bool:
        """Whether it is known without a turn that the gang neither starts nor evicts anybody."""
        key = self._key(gang) if self._state.reserved else gang.turn_key
        known = self._dead.get(key)
        if known is None:
            known = self._refused_already(gang)
            if known is None or (self._again and self._may_lift(gang)) or self._may_evict(gang):
                return False
            if self._may_reserve(gang, known):
                return False
            self._dead[key] = known
            self._refused.append(gang)
        self.refusals[gang.uid] = known
        return True

    def wants_again(self) -> bool:
        """Whether all shall have their turns again: starts were undone, or could be by who was not asked."""
        return self.has_lifted or (not self._again and any(map(self._may_lift, self._refused)))

    def again(self) -> None:
        """All have their turns again: nothing that was refused is known to be refused again."""
        for known in (self._dead, self._nowhere, self._full, self.victims.without):
            known.clear()
        self._refused.clear()
        self.has_lifted, self._again = False, True

    def turn(self, gang: Gang, *, undone: bool = False) -> bool:
        """Settle the gang in the state, or refuse it. Answers whether it is settled. `undone`: it is taken back, so
        nobody is evicted, and reservations stay.
        """
        answer = self._start(gang)
        if isinstance(answer, Refusal) and answer.block not in (Block.FLAVOR, Block.LANDING) and not undone:
            answer = self._displace(gang) or answer
        if isinstance(answer, Settled):
            if not undone:
                self._state.release(gang.uid)
            return True
        self.refusals[gang.uid] = answer
        if self._reserver is not None and self._may_reserve(gang, answer):
            self._reserver.at_turn(gang)
        if answer.landed is None:
            self._dead[self._key(gang)] = answer
        else:  # it keeps that place; the next that is like it may have another, so no other is dead
            self._state.keep(answer.landed)
        return False

    def _may_reserve(self, gang: Gang, refusal: Refusal) -> bool:
        return refusal.by_capacity and self._reserver is not None and self._reserver.wants(gang)

    def _key(self, gang: Gang) -> object:
        """Equal for gangs that get the same answer; of how long they run counts which reservations they outlive."""
        state = self._state
        if gang.uid in state.reserved:
            return gang.uid
        if not state.reserved:
            return gang.turn_key
        return (gang.turn_key, state.reservings, state.outlived(gang.workload))

    # Without eviction

    def _start(self, gang: Gang) -> Settled | Refusal:
        """In full, else at the largest size that fits; where it is entitled first, then on the first flavors."""
        refused, shape = list[Refusal](), gang.shape
        for choice in self._choices(gang, tuple(zip(shape.variants, shape.charges, strict=True))):
            answer = self._try(gang, *choice)
            if isinstance(answer, Settled):
                self._state.start(answer)
                return answer
            refused.append(answer)
        if shape.elastic:
            answers = [self._largest(gang, *choice) for choice in self._choices(gang, shape.least)]
            refused = [answer for answer in answers if isinstance(answer, Refusal)]
            if fitting := [answer for answer in answers if isinstance(answer, Settled)]:
                best = max(fitting, key=lambda s: (s.size, self._entitled(gang, s.charge)))
                self._state.start(best)
                return best
        return deepest(refused)

    def _choices(self, gang: Gang, choices: Sequence[Choice]) -> Sequence[Choice]:
        """Those first in which the gang is entitled, each kind in the order of flavors."""
        return sorted(choices, key=lambda c: not self._entitled(gang, c[1])) if len(choices) > 1 else choices

    def _entitled(self, gang: Gang, charge: Charge) -> bool:
        return any(self._state.claimed.entitlements(gang.queue, charge))

    def _largest(self, gang: Gang, variant: Variant, charge: Charge) -> Settled | Refusal:
        """The smallest size, with each pod set in turn grown as far as it goes."""
        answer = self._try(gang, variant, charge)
        if isinstance(answer, Refusal):
            return answer
        return self._grown(answer, gang, partial(self._at, gang, variant))

    def _grown(
        self, best: Settled, gang: Gang, at: Callable[[dict[str, int]], Settled | Refusal | None]
    ) -> Settled:
        """The same with each pod set in turn as large as it can be. `at`: the gang at these sizes."""
        counts = dict(best.variant.counts)
        for pod_set in gang.workload.pod_sets:
            low, high = counts[pod_set.name], pod_set.count
            while low < high:
                middle = (low + high + 1) // 2
                got = at({**counts, pod_set.name: middle})
                if isinstance(got, Settled):
                    low, best = middle, got
                else:
                    high = middle - 1
            counts[pod_set.name] = low
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
        key = self._placement_key(gang, variant, respected)
        spreads = self._spreads(gang, variant, respected) if key not in self._nowhere else None
        if spreads is not None:
            return Settled(gang=gang, variant=variant, charge=charge, spreads=spreads)
        refusal = Refusal(block=Block.PLACE, variant=variant, charge=charge)
        spreads, owners = self._landed(gang, variant, respected)
        if spreads is not None:
            landed = Settled(gang=gang, variant=variant, charge=charge, spreads=spreads)
            return refusal._replace(block=Block.LANDING, owners=owners, landed=landed)
        self._nowhere[key] = ()
        alone = self._placement_key(gang, variant, ())
        if respected and alone not in self._nowhere and self._spreads(gang, variant, ()) is not None:
            return refusal._replace(block=Block.RESERVED, owners=respected)
        self._nowhere[key] = self._holders(gang, variant, respected)
        return refusal._replace(owners=self._nowhere[key])

    def _spreads(self, gang: Gang, variant: Variant, respected: tuple[str, ...]) -> Spreads | None:
        """A placement that keeps the landing rule, if there is one."""
        landing, workload = self._state.landing, gang.shape.example
        room, closed = self._state.room(respected), self._state.closed(gang)
        parts = self._parts(gang, variant)
        spreads = place(room, workload, parts, closed=closed)
        if spreads is None or landing.may_start(workload, variant.flavors, spreads):
            return spreads
        busy = landing.here | landing.held  # closed to a gang with a choice among them
        spreads = place(room, workload, parts, closed=busy if closed is None else busy | closed)
        lands = spreads is not None and landing.may_start(workload, variant.flavors, spreads)
        return spreads if lands else None

    def _landed(
        self, gang: Gang, variant: Variant, respected: tuple[str, ...]
    ) -> tuple[Spreads | None, tuple[str, ...]]:
        """Where the gang fits once all pods have landed, and whose pods these are."""
        landing, workload = self._state.landing, gang.shape.example
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
        """Uids of gangs for which room is held on the hosts that the gang would fit otherwise."""
        landing = self._state.landing
        if not landing.held.any():
            return ()
        room = self._state.room(respected, View.UNHELD)
        spreads = place(room, gang.shape.example, self._parts(gang, variant), closed=self._state.closed(gang))
        return tuple(landing.holders(sorted(chain.from_iterable(spreads.values())))) if spreads else ()

    def _parts(self, gang: Gang, variant: Variant) -> Sequence[Part] | None:
        key = (gang.shape.placement_key, tuple(variant.counts.values()), tuple(variant.flavors.values()))
        if key not in self._known_parts:
            self._known_parts[key] = parts_of(self._state.nodes, gang.shape.example, variant)
        return self._known_parts[key]

    def _placement_key(self, gang: Gang, variant: Variant, respected: tuple[str, ...]) -> object:
        """Equal for gangs that placement cannot tell apart, whatever their queues."""
        counts, flavors = tuple(variant.counts.values()), tuple(variant.flavors.values())
        return (gang.shape.placement_key, counts, flavors, gang.pending.avoid, respected)

    def _quota(self, gang: Gang, variant: Variant, charge: Charge) -> Refusal | None:
        """The limit in its way, or that it may not borrow."""
        state = self._state
        for usage in state.usages():
            broken = usage.first_broken(gang.queue, charge)
            if broken is not None:
                return Refusal(block=Block.QUOTA, variant=variant, charge=charge, broken=broken)
        if not gang.may_take(charge, state.claimed):
            return Refusal(block=Block.ENTITLEMENT, variant=variant, charge=charge)
        return None

    def _refused_already(self, gang: Gang) -> Refusal | None:
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
                blocked = Refusal(block=Block.PLACE, variant=variant, charge=charge, owners=owners)
            refused.append(blocked)
        found = deepest(refused)
        if found.block is Block.QUOTA and len(refused) == 1:
            self._full[gang.shape.number] = found
        return found

    def _owned(self, gang: Gang) -> Iterator[GangRights]:
        """Its rights to the work of others, by its flavors at its smallest size."""
        return (self._rights.of(gang, charge) for _, charge in gang.shape.least)

    # With lifting and eviction

    def _may_lift(self, gang: Gang) -> bool:
        """Whether there are starts that the gang may take back."""
        return any(map(self._lifting.anything, self._owned(gang)))

    def _may_evict(self, gang: Gang) -> bool:
        """Whether victims are still to be looked for: once a cycle in a leaf, in all together in `BINDINGS`."""
        left_out = (
            gang.queue in self._leaves_bound
            or self.victims.searches >= SEARCHES
            or len(self._leaves_bound) >= BINDINGS
        )
        if left_out and self.more:
            return False
        somebody = any(map(self._rights.anybody, self._owned(gang)))
        self.more |= somebody and left_out
        return somebody and not left_out

    def _displace(self, gang: Gang) -> Settled | None:
        """Settle the gang on its first flavors in the room of starts that it takes back at no cost, else with what the
        cheapest victims leave beside these. Starts that are not in its way are put back.
        """
        for may, settle in ((self._may_lift, self._start_lifted), (self._may_evict, self._evict)):
            for variant, charge in gang.shape.least:
                if not may(gang):
                    break
                mark, lifted = self._state.mark, self._lifting.lift(self._rights.of(gang, charge))
                settled = settle(gang, variant, charge)
                if settled is not None:
                    self._put_back(lifted)
                    return settled
                self._state.undo(mark)
        return None

    def _start_lifted(self, gang: Gang, variant: Variant, charge: Charge) -> Settled | None:
        self._nowhere, known = {}, self._nowhere  # there is more room
        answer = self._try(gang, variant, charge)
        if isinstance(answer, Settled):
            answer = self._grown(answer, gang, partial(self._as_entitled, gang, answer))
        self._nowhere = known
        if isinstance(answer, Refusal):
            return None
        self._state.start(answer)
        return answer

    def _as_entitled(self, gang: Gang, settled: Settled, counts: dict[str, int]) -> Settled | None:
        """The gang at these sizes, if it has the same rights then."""
        answer, entitled = self._at(gang, settled.variant, counts), self._state.claimed.entitlements
        if isinstance(answer, Refusal):
            return None
        return answer if entitled(gang.queue, answer.charge) == entitled(gang.queue, settled.charge) else None

    def _put_back(self, lifted: Iterable[Settled]) -> None:
        """Gangs start after all where they still fit; the others have their turn again."""
        for settled in lifted:
            if can_start(self._state, settled):
                self._state.start(settled)
                self.put_back.append(settled.gang.uid)
            else:
                self.has_lifted = True

    def _evict(self, gang: Gang, variant: Variant, charge: Charge) -> Settled | None:
        seeker = Seeker(gang, variant, charge, self._parts(gang, variant) or ())
        settled = self.victims.bound(seeker, self._behind(seeker))
        if settled is None:
            return None
        for eviction in settled.evictions:
            self._state.leave(eviction.uid)
        settled = self._grown(settled, gang, partial(self._freed, settled))
        self._state.bind(settled)
        self._leaves_bound.add(gang.queue)
        return settled

    def _behind(self, first: Seeker) -> Iterator[Seeker]:
        """Gangs after it in its leaf that might look for the same victims at their turn."""
        leaf = self._state.arrays.waiting.by_leaf[first.gang.queue]
        ahead = leaf.index(first.gang) + 1
        for gang in leaf[ahead : ahead + AHEAD]:
            if gang.uid in self._state.settled or self._starts(gang):
                continue
            for variant, charge in gang.shape.least[:1]:
                if parts := self._parts(gang, variant):
                    yield Seeker(gang, variant, charge, parts)

    def _starts(self, gang: Gang) -> bool:
        """Whether the gang fits as things are, in any flavor, without an eviction."""
        self._nowhere, known = dict(self._nowhere), self._nowhere
        answers = [self._try(gang, *choice) for choice in gang.shape.least]
        self._nowhere = known
        return any(isinstance(answer, Settled) for answer in answers)

    def _freed(self, settled: Settled, counts: dict[str, int]) -> Settled | None:
        """The bound gang at these sizes in what is free without its victims, if it has the same rights then."""
        state, gang = self._state, settled.gang
        variant = replace(settled.variant, counts=counts)
        charge = charge_for(gang.workload, variant.flavors, counts)
        entitled = state.claimed.entitlements
        if entitled(gang.queue, charge) != entitled(gang.queue, settled.charge):
            return None
        if not state.used_later.fits(gang.queue, charge):
            return None
        room, closed = state.room(state.respected(gang, charge), View.LATER), state.closed(gang, bound=True)
        spreads = place(room, gang.workload, self._parts(gang, variant), closed=closed)
        return None if spreads is None else replace(settled, variant=variant, charge=charge, spreads=spreads)


def deepest(refused: Sequence[Refusal]) -> Refusal:
    """The refusal that came farthest; none = there was no flavor."""
    return max(refused, key=lambda r: DEPTH[r.block], default=Refusal(block=Block.FLAVOR))

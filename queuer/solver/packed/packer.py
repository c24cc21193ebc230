"""`order: packed`: a subtree chooses, inside one priority, the gangs that ask for most together (DESIGN 3.4).

At the turn of a subtree's first gang a selection is made for all that waits there, strictly by priority: the same
gangs are tried in several orders, and the exact solver, where there is one, looks for more. Those selected are offered
before others of their priority and start at their places; the rest have their turns after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from queuer.solver.board import Board
from queuer.solver.greedy import Greedy
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.packed.room import Room, stands
from queuer.solver.packed.worth import Worth, packed_subtrees
from queuer.solver.pins import WORK, Pinner

LANDINGS = 3
"""Times that gangs which could not land beside the others are looked for another place."""
SELECTIONS = 4
"""Selections that a subtree makes in one cycle: others may start between its turns and take what it meant to use."""
LEFT_OVER = 5 * WORK
"""Work for finding out in one cycle whether those left over land: see `Pinner`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """Gangs with their places, and the sum of their worth by priority, highest first."""

    picks: Mapping[str, Chosen]
    sums: tuple[int, ...]
    spent: float = 0.0


class Packs(Protocol):
    """Who looks for larger sums, see `queuer.solver.cpsat.packed_model`."""

    def __call__(
        self,
        room: Room,
        tiers: Sequence[Sequence[Gang]],
        worth: Worth,
        best: Selection,
        *,
        seed: int,
        budget: float,
    ) -> Selection:
        """A selection not worse than `best`. Pure: the same arguments give the same answer."""


@dataclass(slots=True, eq=False)
class _Subtree:
    """What a packed subtree has selected in this cycle. `before`: the room as it was then; `fits`: whether it had room
    for gangs that are alike.
    """

    worth: Worth
    before: Room
    fits: dict[object, bool] = field(default_factory=dict)
    picks: Mapping[str, Chosen] = field(default_factory=dict)
    selections: int = 0


class Packer:
    """The selections of one cycle. `spent`: deterministic time."""

    def __init__(self, greedy: Greedy, packs: Packs | None, *, seed: int, budget: float) -> None:
        """`budget`: deterministic time for all selections together."""
        self._greedy = greedy
        self._packs = packs
        self._seed = seed
        self._budget = budget
        self.spent = 0.0
        self._roots = packed_subtrees(greedy.board.book.tree)
        self._subtrees: dict[str, _Subtree] = {}
        self._landing_left = LEFT_OVER

    def due(self, gang: Gang) -> str | None:
        """The subtree that has to select before this gang has its turn: it has not yet, or the gang's place is lost."""
        root = self._roots.get(gang.queue)
        if root is None:
            return None
        known = self._subtrees.get(root)
        if known is None:
            return root
        pick = known.picks.get(gang.uid)
        lost = pick is not None and not stands(self._greedy, pick)
        return root if lost and known.selections < SELECTIONS else None

    def select(self, root: str, waiting: Iterable[Gang]) -> frozenset[str]:
        """Select among all gangs of the subtree that wait for their turn; the uids of those selected."""
        board, room = self._greedy.board, Room(self._greedy)
        if root not in self._subtrees:
            everyone = (
                p.workload for p in board.snapshot.pending if self._roots.get(p.workload.queue) == root
            )
            worth = Worth(everyone, capacity=board.capacity, now=board.time)
            self._subtrees[root] = _Subtree(worth=worth, before=room.copy())
        known = self._subtrees[root]
        known.selections += 1
        mine = (
            g for g in waiting if self._roots.get(g.queue) == root
        )  # a queue below may have another order
        tiers = in_tiers(g for g in mine if not self._greedy.waits_apart(g.uid))
        best = tried_in_orders(room, tiers, known.worth)
        left = self._budget - self.spent
        if self._packs is not None and left > 0:
            best = self._packs(room, tiers, known.worth, best, seed=self._seed, budget=left)
            self.spent += best.spent
        known.picks = best.picks
        return frozenset(known.picks)

    def turn(self, gang: Gang) -> Chosen | Refusal:
        """A gang's turn: at the place that was selected for it, else like any other, without the promise if its subtree
        is packed.
        """
        root = self._roots.get(gang.queue)
        if root is None:
            return self._greedy.turn(gang)
        known = self._subtrees[root]
        pick = known.picks.get(gang.uid)
        if pick is not None and stands(self._greedy, pick):
            self._greedy.take(pick)
            return pick
        answer = self._left_over(gang)
        if isinstance(answer, Refusal) and _had_room(known, gang):
            return replace(answer, packed=root)
        return answer

    def _left_over(self, gang: Gang) -> Chosen | Refusal:
        """A gang that was not selected starts only where it lands, and all that landed before."""
        greedy, before = self._greedy, list(self._greedy.chosen.values())
        epoch = greedy.board.epoch
        answer = greedy.turn(gang, promised=False)
        if isinstance(answer, Refusal) or answer.bound:
            return answer
        late = self._late(greedy.started())
        if not late or late <= self._late(c for c in before if not c.bound):
            return answer
        greedy.lift(greedy.chosen.values())
        greedy.chosen.clear()
        for chosen in before:
            greedy.take(chosen)
        greedy.forget(gang.uid)
        if greedy.board.epoch != epoch:  # others were moved for it: what was refused since is not refused now
            greedy.board.changed()
        return Refusal(block=Block.LANDING, variant=answer.variant)

    def _late(self, chosen: Iterable[Chosen]) -> frozenset[str]:
        pinner = Pinner(self._greedy.board, {}, work=min(WORK, self._landing_left))
        late = frozenset(one.gang.uid for one in pinner.late(chosen))
        self._landing_left = max(0, self._landing_left - pinner.work)
        return late


def _had_room(subtree: _Subtree, gang: Gang) -> bool:
    """Whether the gang would have started, had nobody been selected."""
    workload = gang.pending.workload
    lasts = (workload.estimate, workload.max_runtime)
    key = (gang.shape.number, workload.priority, workload.preemptible, lasts, gang.pending.avoid)
    if key not in subtree.fits:
        subtree.fits[key] = subtree.before.find(gang) is not None
    return subtree.fits[key]


def in_tiers(gangs: Iterable[Gang]) -> list[list[Gang]]:
    """Gangs by priority, highest first, the oldest first in each."""
    tiers: dict[int, list[Gang]] = {}
    for gang in sorted(gangs, key=lambda g: g.seniority):
        tiers.setdefault(gang.pending.workload.priority, []).append(gang)
    return list(tiers.values())


def tried_in_orders(room: Room, tiers: Sequence[Sequence[Gang]], worth: Worth) -> Selection:
    """The best of several orders inside the priorities; of equal ones the first, by seniority."""

    def full(gang: Gang) -> int:
        workload = gang.pending.workload
        return worth.of(workload, {p.name: p.count for p in workload.pod_sets})

    def narrowness(gang: Gang) -> int:
        find, required = room.greedy.board.snapshot.topology.find, gang.pending.workload.required
        return -1 if required is None else find(required) or 0

    orders: list[Callable[[Gang], object]] = [
        lambda g: 0,
        lambda g: -full(g),
        full,
        lambda g: (-narrowness(g), -full(g)),
        lambda g: (narrowness(g) < 0, narrowness(g), -full(g)),
    ]
    tried = (
        filled(room.copy(), [sorted(tier, key=order) for tier in tiers], worth)  # type: ignore[arg-type]
        for order in orders
    )
    return max((landing(room, tiers, worth, one) for one in tried), key=lambda s: s.sums)


def landing(room: Room, tiers: Sequence[Sequence[Gang]], worth: Worth, selection: Selection) -> Selection:
    """The selection with those elsewhere that could not land beside the others, or without them, filled up again."""
    apart = room.copy()
    for _ in range(LANDINGS):
        late = _late(room.greedy.board, selection.picks.values())
        if not late:
            return selection
        apart.apart |= late
        sure = {uid: chosen for uid, chosen in selection.picks.items() if uid not in late}
        order = [sorted(tier, key=lambda g: g.uid not in apart.apart) for tier in tiers]
        selection = filled(apart.copy(), order, worth, first=sure)
    late = _late(room.greedy.board, selection.picks.values())
    return only(tiers, worth, {uid: c for uid, c in selection.picks.items() if uid not in late})


def _late(board: Board, chosen: Iterable[Chosen]) -> frozenset[str]:
    """Uids of those that could not land beside the others."""
    return frozenset(one.gang.uid for one in Pinner(board, {}).late(chosen))


def filled(
    room: Room, tiers: Sequence[Sequence[Gang]], worth: Worth, *, first: Mapping[str, Chosen] | None = None
) -> Selection:
    """One after the other, whoever fits. `first`: places to be tried before any other; changes `room`."""
    picks: dict[str, Chosen] = {}
    for chosen in (first or {}).values():
        if room.bears(chosen):
            room.take(chosen)
            picks[chosen.gang.uid] = chosen
    for gang in (g for tier in tiers for g in tier if g.uid not in picks):
        found = room.find(gang)
        if found is not None:
            room.take(found)
            picks[gang.uid] = found
    return only(tiers, worth, picks)


def only(tiers: Sequence[Sequence[Gang]], worth: Worth, picks: Mapping[str, Chosen]) -> Selection:
    """Just these, in the order of their turns, so that they land in the plan as they do here; with their sums."""
    sums = tuple(
        sum(worth.of(g.pending.workload, picks[g.uid].variant.counts) for g in tier if g.uid in picks)
        for tier in tiers
    )
    in_turn = {g.uid: picks[g.uid] for tier in tiers for g in tier if g.uid in picks}
    return Selection(picks=in_turn, sums=sums)

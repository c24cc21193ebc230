"""One attempt at a plan: the board of this cycle, a tournament on it, and what comes of each gang (DESIGN 3).

Bonds and reservations that stand are put on the board; then the tournament gives each gang its turn; then gangs that
could not land are placed apart, what was chosen is pinned and what was refused is explained.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from queuer.domain.reasons import Deferral, Explanation, Reason
from queuer.solver import bonds
from queuer.solver.apart import place_apart
from queuer.solver.arrays import Arrays
from queuer.solver.awaited import awaited
from queuer.solver.board import Board
from queuer.solver.contest import Contest
from queuer.solver.contested import Arrangement, ExactSolver
from queuer.solver.explain import sentences
from queuer.solver.explain.explainer import Explainer
from queuer.solver.greedy import Greedy, Settle
from queuer.solver.groups import Groups
from queuer.solver.holding import restore
from queuer.solver.order import Gang, Tournament
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.packed.packer import Packer, Selection
from queuer.solver.packed.worth import packed_subtrees
from queuer.solver.pins import Pinner
from queuer.solver.prices import Prices
from queuer.solver.problem import (
    Bond,
    Budget,
    CycleStats,
    Passes,
    Plan,
    Reservation,
    SolveStatus,
)
from queuer.solver.proofs import ProofsOnly
from queuer.solver.reserve import Reserver, with_reservation
from queuer.solver.score import score
from queuer.solver.verify import verify
from queuer.solver.way_back import ask_back, take_back
from queuer.solver.yielding import Yielding, yielding


def _pack(*selection: Any, **bounds: Any) -> Selection:
    """See `Packs`; loaded at the first selection."""
    from queuer.solver.cpsat.packed_model import pack

    return pack(*selection, **bounds)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Given:
    """What an attempt goes by. `solver`: the exact one, if it is to be asked. `prices`: by which something was proven
    in attempts before, the last first; it is added to.
    """

    arrays: Arrays
    now: float
    seed: int
    budget: Budget
    solver: ExactSolver | None = None
    prices: deque[Prices] = field(default_factory=deque)


class Attempt:
    """One attempt. `crowded`: nodes by gang uid that it keeps off, as others are landing there; `ask_back`: who finds
    no other place is tried there all the same, but for those that are to wait, `waits`; `picks`: how gangs are settled
    at their turns, if that may be.

    Once it has run, `gave_back`: whether a bond is given back to a gang that is put off. `improved`: whether better
    places of the exact solver's were taken in a plan that may not be greedy's own.
    """

    def __init__(
        self,
        given: Given,
        *,
        crowded: Mapping[str, frozenset[str]],
        waits: Collection[str] = (),
        ask_back: bool = False,
        picks: Mapping[str, Chosen] = MappingProxyType({}),
    ) -> None:
        arrays, budget, solver = given.arrays, given.budget, given.solver
        self._snapshot = arrays.snapshot
        self._waits = waits
        self._picks = picks
        self._workloads = self._snapshot.workloads()
        self._offers = arrays.offers
        self._now = given.now
        self._seed = given.seed
        self._solver = solver
        self._prices = given.prices
        self._board = Board(arrays, now=self._now)
        self._greedy = Greedy(self._board, crowded=crowded)
        if ask_back:
            self._greedy.ask_back = self._ask_back
        pack = None if solver is None or isinstance(solver, ProofsOnly) else _pack
        packing = budget.deterministic / 2 if pack and packed_subtrees(self._board.book.tree) else 0.0
        self._budget = replace(budget, deterministic=budget.deterministic - packing)
        self._packer = Packer(self._greedy, pack, seed=self._seed, budget=packing)
        self._reserver = Reserver(self._greedy)
        self._held: dict[str, Bond] = {}
        self._standing: dict[str, Bond] = {}
        self.gave_back = False
        self._refused: dict[str, tuple[Gang, Refusal]] = {}
        self._held_up: list[tuple[Gang, tuple[str, ...]]] = []  # with the heads that they wait behind
        self._victims: Mapping[str, frozenset[str]] = {}  # beside whom those were refused who are
        self._order: list[str] = list(self._offers.aside)
        self.improved = False
        self._proven: bool | None = None  # None: no pass was asked for
        self._yielding: Yielding | None = None
        self._groups = Groups(self._board)
        self._waves: tuple[tuple[object, ...], Pinner, list[Chosen]] | None = None

    def run(self) -> tuple[Plan, Yielding | None]:
        """The plan, for `told` to add the reasons, and who should keep off which hosts, if gangs had to be put off."""
        gangs = self._offers.gangs
        self._held = bonds.resume(self._greedy, gangs)
        standing = {uid: bond for uid, bond in self._held.items() if uid not in self._greedy.chosen}
        self._standing = standing
        self._reserver.resume({uid: g for uid, g in gangs.items() if uid not in standing})
        self._contest = self._greedy.contest = Contest(
            self._greedy,
            self._solver,
            seed=self._seed,
            budget=self._budget,
            bonds=standing,
            prices=self._prices,
            late=self._late,
            crosses=lambda one: self._pinned()[0].crosses(one),
        )
        settled = {*self._greedy.chosen, *standing}
        waiting = [g for uid, g in gangs.items() if uid not in settled]
        self._order += [uid for uid in gangs if uid in settled]
        tournament = Tournament(self._snapshot.tree, self._offers.lines, self._board, settled=settled)
        self._play(tournament)
        self._victims = self._gone()
        self._greedy.revise()
        pinner, late = self._pinned()
        if late:
            self._yielding = yielding(self._greedy, late, pinner, self._late)
            place_apart(self._greedy, late, self._late)
        heads = {head for heads in tournament.held_up.values() for head in heads}
        take_back(self._greedy, self._refused, heads, late=self._late, settled=self._reserver.settled)
        self._reserver.finish(gangs)
        self._held_up = [(g, tournament.held_up[g.uid]) for g in waiting if g.uid in tournament.held_up]
        self._order += [gang.uid for gang, _ in self._held_up]
        return self._plan(), self._yields()

    @property
    def as_greedy(self) -> bool:
        """See `Cycle`, once this has run."""
        return self._greedy.as_greedy

    @property
    def settled(self) -> Mapping[str, Chosen]:
        """Those who start or are bound, once this has run, by uid."""
        return self._greedy.chosen

    @property
    def apart(self) -> bool:
        """Whether a gang waits because it keeps off nodes, once this has run."""
        greedy = self._greedy
        landing = (uid for uid, (_, refusal) in self._refused.items() if refusal.block is Block.LANDING)
        return any(greedy.waits_apart(uid) and uid not in greedy.awaiting for uid in landing)

    def _play(self, tournament: Tournament) -> None:
        while (gang := tournament.next()) is not None:
            subtree = self._packer.due(gang)
            if subtree is not None:
                tournament.prefer(subtree, self._packer.select(subtree, tournament.waiting(subtree)))
                continue
            self._order.append(gang.uid)
            self._reserver.set_aside(gang.uid)
            pick = self._picks.get(gang.uid)
            answer = (pick and self._greedy.retake(pick)) or self._packer.turn(gang)
            if isinstance(answer, Refusal):
                self._reserver.refused()
                self._refused[gang.uid] = (gang, answer)
                if _by_capacity(answer):
                    self._reserver.consider(gang)
            else:
                self._reserver.settled(gang.uid)
            tournament.done(gang, settled=isinstance(answer, Chosen))

    def _ask_back(self, gang: Gang, settle: Settle) -> Chosen | None:
        """See `way_back.ask_back`; not for those that are to wait."""
        return None if gang.uid in self._waits else ask_back(self._greedy, gang, settle, late=self._late)

    def improve(self, plan: Plan, *, most: float) -> tuple[Plan, bool]:
        """The plan of `run`, as nothing has moved since, or one of the exact solver's with the same gangs where that is
        sound and scores higher; whether it is that one, in which all land. `most`: deterministic time.
        """
        before, late, taken = dict(self._greedy.chosen), bool(self._late()), False
        answer = self._contest.improve(most)
        if self._contest.at_best:
            self._proven = True
        elif answer is not None:
            self._proven = False
        if isinstance(answer, Arrangement):
            lands = self._contest.adopt(answer) and not self._late()
            better = self._plan()
            gained = score(self._snapshot, better, now=self._now) > score(self._snapshot, plan, now=self._now)
            if lands and gained:
                better = self.told(better)
                lands = not verify(self._snapshot, better, now=self._now)
            # The proof is about the answer: where that cannot be carried out, it says nothing about this plan.
            self._proven = answer.proven and lands
            taken = lands and gained
            if taken:
                plan, self.improved = better, late or not self._is_greedys
            else:
                restore(self._greedy, before)
        return replace(plan, stats=self._stats()), taken

    @property
    def outdated(self) -> bool:
        """Whether somebody was refused, or got less than all or a later flavor, beside other victims than go in the
        end, or than go for the same gangs then.
        """
        chosen = self._greedy.chosen.values()
        less = bool(self._refused) or not all(c.is_full for c in chosen)
        return less and self._gone() != self._victims

    def _gone(self) -> dict[str, frozenset[str]]:
        """Victims of this cycle by beneficiary."""
        chosen = self._greedy.chosen.items()
        return {uid: frozenset(e.uid for e in one.evictions) for uid, one in chosen if one.evictions}

    @property
    def _is_greedys(self) -> bool:
        """Whether all turns went as without the exact solver, whose places were taken after them: greedy's own plan,
        where all land, is then the one that is improved.
        """
        return not self._greedy.counts.contested and self.as_greedy

    def _yields(self) -> Yielding | None:
        """Who should keep off which hosts; None = all land."""
        pinner, late = self._pinned()
        return (self._yielding or yielding(self._greedy, late, pinner, self._late)) if late else None

    @property
    def _kept_waiting(self) -> list[str]:
        """Those that are to wait and do."""
        return [uid for uid in self._waits if uid in self._refused]

    # The plan

    def _plan(self) -> Plan:
        pinner, late = self._pinned()
        put_off = {one.gang.uid for one in late}
        bound = {uid: bond for uid, bond in self._bonds().items() if uid not in put_off}
        settled = self._greedy.chosen.items()
        evictions = [e for uid, c in settled if c.bound and uid not in put_off for e in c.evictions]
        back = {uid: bond for uid, bond in self._held.items() if uid in put_off}
        bound.update(back)
        self.gave_back |= bool(back)
        bound = {
            uid: replace(bond, assignments=pinner.to_hosts(self._workloads[uid], bond.assignments))
            for uid, bond in bound.items()
        }
        reservations = (*self._reserver.held, *self._given_back(late))
        return Plan(
            admissions=pinner.admissions(),
            evictions=tuple(evictions),
            bonds=tuple(bound.values()),
            reservations=reservations,
            explanations={},
            order=tuple(self._order),
            stats=self._stats(),
        )

    def _given_back(self, late: Sequence[Chosen]) -> tuple[Reservation, ...]:
        """Reservations of those that are put off, where they can stay."""
        if not late:
            return ()
        self._greedy.lift(late)
        back = self._reserver.given_back({one.gang.uid for one in late})
        for one in late:
            self._greedy.take(one)
        return back

    def told(self, plan: Plan) -> Plan:
        """The plan of `run`, as nothing has moved since, with the reason of everyone who waits."""
        if plan.explanations:
            return plan
        pinner, late = self._pinned()
        told = self._reasons(late)
        for one in late:
            told[one.gang.uid] = sentences.put_off(crossing=pinner.crosses(one))
        gone = {e.uid for e in plan.evictions}
        for bond in plan.bonds:
            left = [*filter(gone.__contains__, bond.victims), *bonds.leaving(self._board, bond)]
            told[bond.uid] = sentences.bound(bond, left, self._workloads.get)
        for held in plan.reservations:
            if held.uid in told:
                told[held.uid] = with_reservation(told[held.uid], held)
        return replace(plan, explanations=told)

    def _reasons(self, late: Sequence[Chosen]) -> dict[str, Explanation]:
        """Why those wait that had their turn or are held up, as things lie now without those that are put off, whose
        bonds stay.
        """
        put_off = frozenset(one.gang.uid for one in late)
        again = [bond for uid, bond in self._held.items() if uid in put_off]
        told = dict(self._offers.aside)
        self._greedy.lift(late)
        with self._greedy.none_kept(), bonds.held_again(self._board, self._offers.gangs, again):
            explainer = Explainer(self._board, self._greedy, put_off=put_off)
            for uid, (gang, refusal) in self._refused.items():
                told[uid] = explainer.refused(gang, refusal)
            told |= dict.fromkeys(self._kept_waiting, Explanation(primary=sentences.deferred(Deferral.PLAN)))
            behind: dict[tuple[str, ...], Reason] = {}
            for gang, uids in self._held_up:
                if uids not in behind:
                    heads = [self._workloads[uid] for uid in uids]
                    behind[uids] = sentences.held_up(gang.queue, heads, told)
                told[gang.uid] = explainer.held_up(gang, behind[uids])
        for one in late:
            self._greedy.take(one)
        return told

    def _bonds(self) -> dict[str, Bond]:
        bound = [one for one in self._greedy.chosen.values() if one.bound]
        leaving = awaited(self._board, bound)
        return {**self._standing, **{c.gang.uid: self._new_bond(c, leaving[c.gang.uid]) for c in bound}}

    def _late(self) -> list[Chosen]:
        """Who could not land as things are."""
        return self._pinned()[1]

    def _pinned(self) -> tuple[Pinner, list[Chosen]]:
        """The waves of all that start, and who found none: reckoned once while nothing moves."""
        lying = (*self._greedy.chosen.values(), *self._board.horizons)
        if self._waves is None or self._waves[0] != lying:
            places = {uid: bond.assignments for uid, bond in self._standing.items()}
            places |= {uid: self._groups.of(c)[0] for uid, c in self._greedy.chosen.items() if c.bound}
            held = {uid: (self._workloads[uid], rows) for uid, rows in places.items()}
            pinner = Pinner(self._board, held, groups=self._groups)
            self._waves = (lying, pinner, pinner.late(self._greedy.chosen.values()))
        return self._waves[1:]

    def _new_bond(self, chosen: Chosen, leaving: Sequence[str]) -> Bond:
        bond = Bond(
            uid=chosen.gang.uid,
            assignments=self._groups.of(chosen)[0],
            victims=(*(e.uid for e in chosen.evictions), *leaving),
            deadline=self._now + self._budget.bond,
        )
        return bonds.prolonged(bond, self._board.holds)

    def _stats(self) -> CycleStats:
        counts = self._greedy.counts
        causes = counts.deferred + Counter({Deferral.PLAN: len(self._kept_waiting)})
        if self._solver is None or not (counts.contested or self._proven is not None):
            status = SolveStatus.GREEDY
        else:
            waits = causes.total() or self._greedy.awaiting or self.apart
            best = self._proven and not waits and not self.outdated
            status = SolveStatus.OPTIMAL if best else SolveStatus.FEASIBLE
        return CycleStats(
            status=status,
            considered=len(self._order),
            contested=counts.contested,
            rearranged=counts.rearranged,
            proved=counts.proved,
            proved_in_place=counts.proved_in_place,
            deferred=causes.total(),
            causes=dict(causes),
        )

    @property
    def passes(self) -> Passes:
        """How far they have come, once this has run."""
        counts, contest = self._greedy.counts, self._contest
        return Passes(
            attempts=1,
            selection=self._packer.spent,
            questions=contest.questions,
            layouts=contest.layouts,
            improvement=contest.improvement,
            victims=counts.victims,
            arrangements=counts.arrangements,
            moves=counts.moves,
        )


def _by_capacity(refusal: Refusal) -> bool:
    """Whether nodes alone are in the way: no place, or the live capacity as root's limit."""
    if refusal.block is Block.QUOTA:
        return refusal.bar is not None and refusal.bar.live
    return refusal.block in (Block.PLACE, Block.DEFERRED, Block.RESERVED)

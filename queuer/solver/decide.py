"""`decide()`: from a snapshot to a plan, without I/O, clock or chance.

Once through: follow the snapshot, bonds that can start, tournament, repair, reservations, pins, verify, reasons.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from queuer.domain.assignments import Admission, Bond, Reservation
from queuer.solver import bonds
from queuer.solver.arrays import Arrays
from queuer.solver.cpsat import CpSat
from queuer.solver.explain.reasons import reasons
from queuer.solver.faults import check_moment
from queuer.solver.order import Tournament
from queuer.solver.packed import packed_subtrees, select
from queuer.solver.records import Budget, CycleStats, Plan, Snapshot
from queuer.solver.repair import Repair, after_turns
from queuer.solver.repair.decode import can_start
from queuer.solver.reserve import Resumed
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled
from queuer.solver.turn import Turns
from queuer.solver.verified import verified

ROUNDS = 4
"""Times that all who wait have their turns in one cycle, at most."""


def decide(
    snapshot: Snapshot, *, now: float, seed: int, budget: Budget, arrays: Arrays | None = None
) -> Plan:
    """The plan for this moment. The same arguments give the same plan.

    `arrays`: those of this very snapshot, where the caller keeps them. Raises InvalidInput, with the fields, where what
    is given contradicts itself.
    """
    check_moment(snapshot, now=now, budget=budget)
    arrays = arrays or Arrays.of(snapshot)
    assert arrays.snapshot is snapshot
    return _Cycle(arrays, now=now, seed=seed, budget=budget).plan()


class Following:
    """`decide()` for one snapshot after the other, with arrays that are kept in between; cheapest where snapshots share
    their records.
    """

    def __init__(self) -> None:
        self._arrays: Arrays | None = None

    def follow(self, snapshot: Snapshot) -> Arrays:
        """The arrays of this snapshot, kept for what is asked next."""
        self._arrays = Arrays.of(snapshot) if self._arrays is None else self._arrays.follow(snapshot)
        return self._arrays

    def __call__(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """See `decide`."""
        return decide(snapshot, now=now, seed=seed, budget=budget, arrays=self.follow(snapshot))


class _Cycle:
    """One pass. Each step takes over the state as the one before left it."""

    def __init__(self, arrays: Arrays, *, now: float, seed: int, budget: Budget) -> None:
        self._arrays, self._budget = arrays, budget
        self._state, self._held, self._reserver = Resumed.of(arrays, time=now)
        self._solver = CpSat(budget.deterministic, seed=seed)
        self._turns = Turns(self._state, self._reserver, solver=self._solver)
        self._tournament = Tournament(
            arrays.book.tree,
            arrays.waiting.by_leaf,
            self._state,
            settled=self._state.settled,
            refused=self._turns.refused,
        )
        self._resumed = tuple(self._state.settled)
        self._order: dict[str, None] = {}  # by their last turns
        self._rounds = 1
        self._repaired = Repair()

    def plan(self) -> Plan:
        """From the first turn to the verified plan."""
        self._play()
        lines, refusals = self._arrays.waiting.by_leaf, self._turns.refusals
        self._repaired = after_turns(self._state, lines.values(), refusals, solver=self._solver)
        if self._repaired.contested:
            self._solver.record(proven=self._repaired.proven)
        reservations = self._reserver.finish(lines.values(), self._blocked)
        return verified(self._made(reservations), self._state.snapshot, now=self._state.time)

    # Turns

    def _play(self) -> None:
        """The tournament, gang by gang."""
        tournament, packed = self._tournament, packed_subtrees(self._arrays.book.tree)
        chosen, starts = set[tuple[str, int]](), dict[str, Settled]()
        while (gang := tournament.next() or self._again()) is not None:
            root = None if gang.pending.first else packed.get(gang.queue)
            priority = gang.workload.priority
            if root is not None and (root, priority) not in chosen and self._solver.left > 0:
                chosen.add((root, priority))
                alike = [g for g in tournament.waiting(root) if g.workload.priority == priority]
                line = sorted(alike, key=lambda g: g.place_in_line())
                answer = select(self._state, line, solver=self._solver)
                self._solver.record(proven=answer.proven)
                starts.update(answer.starts)
                tournament.prefer(root, answer.starts)
                continue
            settled = self._selected(starts.get(gang.uid)) or self._turns.turn(gang)
            for uid in (gang.uid, *self._turns.put_back):
                self._order[uid] = self._order.pop(uid, None)
            self._turns.put_back.clear()
            tournament.done(gang, settled=settled)

    def _again(self) -> Gang | None:
        """The first turn of another round, where turns have undone starts: some of their room may be left."""
        turns, state = self._turns, self._state
        if not turns.wants_again():
            return None
        if self._rounds == ROUNDS:
            turns.more = True
            return None
        self._rounds += 1
        turns.again()
        self._reserver.forget()
        self._tournament.restart(state.settled.keys() | state.kept.keys())
        return self._tournament.next()

    def _selected(self, settled: Settled | None) -> bool:
        """Start a gang where a selection has it, if that is still possible."""
        if settled is None or not can_start(self._state, settled):
            return False
        self._state.start(settled)
        self._state.release(settled.gang.uid)
        return True

    def _blocked(self, gang: Gang) -> bool:
        """Whether capacity alone blocks the gang."""
        refusal = self._turns.refusals.get(gang.uid)
        return refusal is not None and refusal.by_capacity and gang.uid not in self._state.settled

    # The plan

    def _made(self, reservations: tuple[Reservation, ...]) -> Plan:
        """The plan with pins and reasons, not verified yet."""
        state, turns = self._state, self._turns
        starts = [s for s in state.settled.values() if not s.bound]
        bound = [s for uid, s in state.settled.items() if s.bound and uid not in self._held]
        held = {**self._held, **{s.gang.uid: self._bond(s) for s in bound}}
        gangs = self._arrays.waiting.gangs
        late = self._repaired.started  # who was entitled at its turn was so without these
        resumed = (uid for uid in self._resumed if uid not in self._order)
        had = [*resumed, *(uid for uid in self._order if uid not in late), *late]
        order = tuple(dict.fromkeys(chain(had, gangs, self._arrays.waiting.aside)))
        explanations = reasons(
            state,
            refusals=turns.refusals,
            held_up=self._tournament.held_up,
            bonds=held,
            aside=self._arrays.waiting.aside,
            order=order,
        )
        return Plan(
            admissions=tuple(Admission(uid=s.gang.uid, assignments=s.pinned(state.nodes)) for s in starts),
            evictions=tuple(e for s in state.settled.values() for e in s.evictions),
            bonds=tuple(held.values()),
            reservations=reservations,
            explanations=explanations,
            order=order,
            stats=CycleStats(
                status=self._solver.status,
                turns=len(self._order),
                searches=turns.victims.searches,
                proved=turns.victims.proved,
                contested=self._repaired.contested,
                repaired=len(self._repaired.started),
                solver_time=round(self._solver.spent, 6),
                more=turns.more,
            ),
        )

    def _bond(self, settled: Settled) -> Bond:
        """The bond of a gang whose victims leave, and others whose room it needs."""
        state, hosts = self._state, settled.hosts
        own = {e.uid: None for e in settled.evictions}
        own.update({uid: None for uid in state.leaving if not hosts.isdisjoint(state.rows_of(uid))})
        bond = Bond(
            uid=settled.gang.uid,
            assignments=settled.pinned(state.nodes),
            victims=tuple(own or state.leaving),
            deadline=state.time + self._budget.bond,
            lost=next((replace(e.lost, amount=e.lost.all) for e in settled.evictions if e.lost), None),
        )
        return bonds.prolonged(state, bond)

"""The world that one stored cycle leaves, and what is derived from it for questions: arrays, state, line of turns.

Nothing is decided here for real. All of it is worked out when somebody asks, and kept until there is a newer cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from queuer.domain.per_user import Shares, Waiting, is_unstartable, over_user_limit
from queuer.domain.queue import QueueTree
from queuer.domain.reasons import Explanation
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.order import Tournament
from queuer.solver.records import WITHOUT_SOLVER, Pending, Plan, Snapshot
from queuer.solver.reserve import Resumed
from queuer.solver.shapes import Gang
from queuer.solver.state import State
from queuer.solver.stored import StoredCycle
from queuer.solver.verified import UnsoundPlan
from queuer.solver.world import World


class AfterCycle:
    """Of one cycle, which had a plan; for one thread at a time.

    `snapshot`: the input of a decision that follows at the same moment; `pending`: all that wait, by uid; `started`:
    uids of what the plan starts.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan, *, now: float, seed: int) -> None:
        self.plan, self.now, self.seed = plan, now, seed
        world = World(snapshot, now=now)
        world.apply(plan)
        self.snapshot, self.pending = world.snapshot(), world.waiting
        self.started = {admission.uid for admission in plan.admissions}

    @classmethod
    def of(cls, cycle: StoredCycle) -> AfterCycle:
        """The world after a stored cycle."""
        assert cycle.plan is not None
        return cls(cycle.snapshot, cycle.plan, now=cycle.now, seed=cycle.seed)

    # Arrays and state

    @cached_property
    def _holding(self) -> Snapshot:
        """With those waiting alone that something is held for."""
        held = [bond.uid for bond in self.plan.bonds] + [row.uid for row in self.plan.reservations]
        return replace(
            self.snapshot,
            pending=tuple(self.pending[uid] for uid in dict.fromkeys(held) if uid in self.pending),
        )

    @cached_property
    def _few(self) -> Arrays:
        return Arrays.of(self._holding)

    @cached_property
    def arrays(self) -> Arrays:
        """With all that wait."""
        return self._few.follow(self.snapshot)

    def arrays_with(self, *pending: Pending) -> Arrays:
        """With these gangs waiting beside those alone that something is held for."""
        return self._few.follow(_with(self._holding, pending))

    def state_with(self, *pending: Pending) -> State:
        """The state at the beginning of a cycle with the same gangs waiting as in `arrays_with`."""
        return Resumed.of(self.arrays_with(*pending), time=self.now).state

    @cached_property
    def state(self) -> State:
        """The state at the beginning of the next cycle."""
        return Resumed.of(self.arrays, time=self.now).state

    # The order of turns

    @cached_property
    def line(self) -> tuple[Gang, ...]:
        """All that take part, in the order in which the tournament offers them while nobody starts.

        Bound gangs come first: they have their place already. A packed subtree is in the order of its priorities and
        submit times, as its selection is not made again here.
        """
        state = self.state
        return (*(self.arrays.waiting.gangs[uid] for uid in state.settled), *self._offered(state))

    def _offered(self, state: State) -> Iterator[Gang]:
        lines = self.arrays.waiting.by_leaf
        tournament = Tournament(state.book.tree, lines, state, settled=state.settled)
        while (gang := tournament.next()) is not None:
            yield gang
            tournament.done(gang, settled=True)  # a refused head of a strict queue would end its line

    @cached_property
    def first(self) -> dict[str, Gang]:
        """The gang that each queue offers its parent, by queue."""
        found: dict[str, Gang] = {}
        for gang in self.line:
            if gang.uid not in self.state.settled:
                for path in self.state.book.lineage(gang.queue):
                    found.setdefault(path, gang)
        return found

    # The next decision, without CP-SAT

    def decide(self, arrays: Arrays) -> Plan:
        """The plan for these arrays at the same moment. Raises InvalidInput, UnsoundPlan."""
        return decide(arrays.snapshot, now=self.now, seed=self.seed, budget=WITHOUT_SOLVER, arrays=arrays)

    def decided(self, arrays: Arrays) -> Plan | None:
        """The same, or None if the plan does not stand: it promises nothing then."""
        try:
            return self.decide(arrays)
        except UnsoundPlan:
            return None

    def evictions(
        self, pending: Pending, *, tree: QueueTree | None = None, gone: str | None = None, all_: bool = False
    ) -> int | None:
        """How many workloads would be evicted for the gang, or None if it would not start.

        `tree`: other queues; `gone`: an admitted workload that is gone. `all_`: beside all that wait, since room for
        others may change the order of turns too.
        """
        uid = pending.workload.uid
        snapshot = _with(self._holding, [*(self.pending.values() if all_ else ()), pending])
        snapshot = replace(snapshot, tree=tree or snapshot.tree)
        if gone is not None:
            world = World(snapshot, now=self.now)
            world.leave(gone)
            snapshot = world.snapshot()
        if all_:  # whoever is gone may leave room to others of its user
            snapshot, _ = within_user_limits(snapshot, self.plan)
        plan = self.decided((self.arrays if all_ else self._few).follow(snapshot))
        if plan is None:
            return None
        if any(admission.uid == uid for admission in plan.admissions):
            return 0
        return sum(eviction.beneficiary == uid for eviction in plan.evictions) or None


def _with(snapshot: Snapshot, pending: Iterable[Pending]) -> Snapshot:
    rows = {row.workload.uid: row for row in (*snapshot.pending, *pending)}
    return replace(snapshot, pending=tuple(rows.values()))


# Limits of users, where no controller applies them


def within_user_limits(snapshot: Snapshot, plan: Plan) -> tuple[Snapshot, dict[str, Explanation]]:
    """The snapshot with those waiting that a decision is asked about, and why the others are not.

    The users of the others have what they may have. `plan`: the last one, for its explanations.
    """
    tree = snapshot.tree
    if not tree.per_user and not snapshot.over_limit:
        return snapshot, {}
    rows = {row.workload.uid: row for row in (*snapshot.pending, *snapshot.over_limit)}
    waiting = {each.workload.uid: each for each in waiting_in(snapshot, plan)}
    told = over_user_limit(waiting.values(), shares_of(snapshot), tree)
    pending = tuple(replace(row, unstartable=False) for uid, row in rows.items() if uid not in told)
    over_limit = tuple(replace(rows[uid], unstartable=waiting[uid].unstartable) for uid in told)
    return replace(snapshot, pending=pending, over_limit=over_limit), told


def waiting_in(snapshot: Snapshot, plan: Plan) -> Iterator[Waiting]:
    """All that wait, with their explanations in the last plan."""
    bound = {bond.uid for bond in snapshot.bonds}
    for row in (*snapshot.pending, *snapshot.over_limit):
        own = row.workload
        why = plan.explanations.get(own.uid)
        yield Waiting(
            workload=own,
            first=row.first,
            bound=own.uid in bound,
            unstartable=row.unstartable or is_unstartable(why),
            why=why,
        )


def shares_of(snapshot: Snapshot) -> Shares:
    """The use of each user."""
    shares = Shares(snapshot.tree)
    for held in snapshot.admitted:
        shares.use(held.workload, held.counts)
    return shares

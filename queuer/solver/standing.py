"""How things stand after a plan: the line of all who wait, and what each queue has, for whoever asks about queues.

Nothing is decided here. It is worked out on the stored cycle when somebody asks, and kept until a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from queuer.domain.workload import Workload
from queuer.solver import bonds
from queuer.solver.explain.advice import Aftermath
from queuer.solver.order import Tournament
from queuer.solver.records import Plan, Snapshot
from queuer.solver.shapes import Gang
from queuer.solver.state import State


class Standing:
    """Of one stored cycle; for one thread at a time."""

    def __init__(self, snapshot: Snapshot, plan: Plan, *, now: float, seed: int) -> None:
        self.plan, self.now, self.seed = plan, now, seed
        self.after = Aftermath(snapshot, plan, now=now, seed=seed)

    @cached_property
    def state(self) -> State:
        """With all who wait; bonds hold what they hold."""
        state = State(self.after.whole(), time=self.now)
        bonds.resume(state)
        return state

    @cached_property
    def line(self) -> tuple[Gang, ...]:
        """All that take part, in the order in which the tournament offers them while nobody starts.

        Bound gangs come first: they have their place already. A packed subtree is in the order of its priorities and
        submit times, as its selection is not made again here.
        """
        waiting = self.state.arrays.waiting
        return (*(waiting.gangs[uid] for uid in self.state.settled), *self._offered())

    def _offered(self) -> Iterator[Gang]:
        waiting, tree = self.state.arrays.waiting, self.state.book.tree
        tournament = Tournament(tree, waiting.by_leaf, self.state, settled=self.state.settled)
        while (gang := tournament.next()) is not None:
            yield gang
            tournament.done(gang, settled=True)  # a refused head of a strict queue would end its line

    @cached_property
    def first(self) -> dict[str, Gang]:
        """By queue whom it offers its parent."""
        found: dict[str, Gang] = {}
        for gang in self.line:
            if gang.uid not in self.state.settled:
                for path in self.state.book.lineage(gang.queue):
                    found.setdefault(path, gang)
        return found

    @property
    def workloads(self) -> dict[str, Workload]:
        """All who wait, by uid."""
        return {uid: pending.workload for uid, pending in self.after.pending.items()}

"""What will be free when, by the ends that are expected of all that holds nodes (DESIGN 3.4)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

import numpy as np

from queuer.solver.ends import end_of, expected_end
from queuer.solver.nodes import Matrix, Rows
from queuer.solver.state import State


class Timeline:
    """Ends in order: known ones by time, then the unknown ones, the longest running first. A *step* is a number of
    ends: at step 3 the first three have come. `times`: when the known ones do; `steps`: how many there are in all.

    It is of the moment at which it was made: victims have gone, bound gangs and this cycle's starts are in place.
    """

    def __init__(self, state: State) -> None:
        ends: list[tuple[float, float, str, Rows]] = [
            (expected_end(hold.admitted, now=state.time), hold.admitted.since, uid, state.rows_of(uid))
            for uid, hold in state.holds.items()
            if uid not in state.leaving
        ]
        for uid, settled in state.settled.items():
            if not settled.bound:
                end = end_of(settled.gang.workload, start=state.time)
                ends.append((inf if end is None else end, state.time, uid, state.rows(settled)))
        ends.sort(key=lambda end: end[:3])
        self.times = [end[0] for end in ends if end[0] < inf]
        self.steps = len(ends)
        self._began = state.then.copy()
        self._lengths = np.cumsum([0, *(len(end[3]) for end in ends)])
        self._nodes = np.array([node for end in ends for node in end[3]], dtype=np.intp)
        amounts = [row for end in ends for row in end[3].values()]
        self._amounts = np.array(amounts, dtype=np.int64).reshape(len(amounts), self._began.shape[1])

    def step_at(self, time: float) -> int:
        """How many have ended by then."""
        return bisect_right(self.times, time)

    def step_before(self, time: float) -> int:
        """How many have ended earlier."""
        return bisect_left(self.times, time)

    def free(self, step: int) -> Matrix:
        """What is free at a step (N x R), a new matrix."""
        free = self._began.copy()
        length = self._lengths[step]
        np.add.at(free, self._nodes[:length], self._amounts[:length])
        return free

"""The repair: after the turns CP-SAT is asked once for an arrangement in which more gangs start (DESIGN 3.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from queuer.solver.placement import Spreads
from queuer.solver.repair.window import Contested, Lifted, Window
from queuer.solver.state import State

NODES = (1024, 256, 64)
"""Nodes that are looked at: fewer where the model would be large."""
LARGE = 2_500
"""Variables of a large model."""
PASS = 0.03
"""Deterministic time in which contested gangs are fitted in, at most."""
MOVES = 0.01
"""The same for narrower domains and fewer moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """New placements, by uid, of contested gangs that start and of all starts that could have moved, in an order in
    which they can start; none: nothing better was found. `started`: the contested ones; `spent`: deterministic time;
    `proven`: no more of the contested can start in the window.
    """

    placements: Mapping[str, Spreads] = field(default_factory=dict)
    started: tuple[str, ...] = ()
    spent: float = 0.0
    proven: bool = True


def excluded(state: State, contested: Contested) -> bool:
    """Whether sums of free slots exclude the gang, wherever this cycle's starts might move."""
    return Lifted(state).excludes(contested)


def repair(state: State, contested: Sequence[Contested], *, seed: int, budget: float) -> Repaired:
    """Fit contested gangs in, the earlier the more it counts; all that start in this cycle stay started, but may move.
    The state is left as it is.
    """
    if budget <= 0 or not contested:
        return Repaired(proven=not contested)
    from queuer.solver.repair.solve import maximise

    lifted = Lifted(state)
    window = Window(lifted, contested, most=NODES[0])
    for most in NODES[1:]:
        if len(window.model.rows.bounds) <= LARGE:
            break
        window = Window(lifted, contested, most=most)
    rows, weights = window.model.rows, window.weights
    first = maximise(rows, weights, seed=seed, budget=min(PASS, budget))
    reached = sum(c * first.values[v] for v, c in weights.items()) if first.values else 0
    if not reached:
        return Repaired(spent=first.spent, proven=first.proven)
    costs = window.costs(first.values)
    rows.row(weights, low=reached)
    second = maximise(
        rows, {v: -c for v, c in costs.items()}, seed=seed, budget=min(MOVES, budget - first.spent)
    )
    spent = first.spent + second.spent
    placements = {s.gang.uid: s.spreads for s in window.laid(second.values or first.values)}
    started = tuple(uid for uid in window.contested if uid in placements)
    if not started or not window.starts.keys() <= placements.keys():
        return Repaired(spent=spent, proven=False)
    proven = first.proven and len(started) == (reached).bit_count()
    return Repaired(placements=placements, started=started, spent=spent, proven=proven)

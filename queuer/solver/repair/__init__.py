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
PASS, MOVES = 0.03, 0.01
"""Deterministic time at most: to fit gangs in, and to do so with fewer moves."""


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


def repair(state: State, contested: Sequence[Contested], *, seed: int, budget: float) -> Repaired:
    """Fit contested gangs in, the earlier the more it counts; all that start in this cycle stay started, but may move.
    The state is left as it is.
    """
    if budget <= 0 or not contested:
        return Repaired(proven=not contested)
    try:
        return _solved(_window(state, contested), seed=seed, budget=budget)
    except OverflowError:  # amounts of which sums exceed int64
        return Repaired(proven=False)


def _window(state: State, contested: Sequence[Contested]) -> Window:
    lifted = Lifted(state)
    window = Window(lifted, contested, most=NODES[0])
    for most in NODES[1:]:
        if len(window.model.rows.bounds) <= LARGE:
            break
        window = Window(lifted, contested, most=most)
    return window


def _solved(window: Window, *, seed: int, budget: float) -> Repaired:
    from queuer.solver.repair.solve import maximise  # OR-Tools is loaded when it is asked

    rows, weights = window.model.rows, window.weights
    if not weights:
        return Repaired()
    first = maximise(rows, weights, seed=seed, budget=min(PASS, budget))
    reached = sum(c * first.values[v] for v, c in weights.items()) if first.values else 0
    if not reached:
        return Repaired(spent=first.spent, proven=first.proven)
    rows.row(weights, low=reached)
    fewer = {v: -c for v, c in window.moves(first.values).items()}
    second = maximise(rows, fewer, seed=seed, budget=min(MOVES, budget - first.spent))
    spent = first.spent + second.spent
    placements = {s.gang.uid: s.spreads for s in window.laid(second.values or first.values)}
    started = tuple(uid for uid in window.contested if uid in placements)
    if not started or not window.starts.keys() <= placements.keys():
        return Repaired(spent=spent, proven=False)
    proven = first.proven and len(started) == reached.bit_count()
    return Repaired(placements=placements, started=started, spent=spent, proven=proven)

"""`decide()`: from a snapshot to a plan, without I/O, clock or chance (DESIGN 4).

With the exact solver and, where that may have lost something, without it; the better plan counts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from queuer.domain.reasons import Token
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Given
from queuer.solver.attempts import RETRY, Attempts, is_small
from queuer.solver.contested import Arrangement, ExactSolver, Layout, Places, Proof, Question, Unknown
from queuer.solver.explain import sentences
from queuer.solver.packed.worth import packed_subtrees
from queuer.solver.prices import Prices
from queuer.solver.problem import Budget, Passes, Plan, Snapshot
from queuer.solver.proofs import ProofsOnly
from queuer.solver.score import score
from queuer.solver.sound import check_moment, refusing

KEPT = 4
"""Prices tried, the last that proved something first."""


def decide(
    snapshot: Snapshot,
    *,
    now: float,
    seed: int,
    budget: Budget,
    solver: ExactSolver | None = None,
    arrays: Arrays | None = None,
) -> Plan:
    """The plan for this moment. The same arguments give the same plan.

    `solver`: the exact solver for contested gangs; by default the one of `queuer.solver.cpsat` if there
    is deterministic budget and ortools is installed. Without one, contested gangs wait as deferred. `arrays`: those
    of this very snapshot, where the caller keeps them. Raises InvalidInput, with the fields, where what is given
    contradicts itself.
    """
    check_moment(snapshot, now=now, budget=budget)
    arrays = arrays or Arrays.of(snapshot)
    assert arrays.snapshot is snapshot
    with refusing(snapshot):
        return _decide(arrays, now=now, seed=seed, budget=budget, solver=solver)


def _decide(arrays: Arrays, *, now: float, seed: int, budget: Budget, solver: ExactSolver | None) -> Plan:
    snapshot = arrays.snapshot
    solver = solver or (_default_solver(arrays) if budget.deterministic > 0 else None)
    prices = deque[Prices](maxlen=KEPT)
    given = Given(arrays=arrays, now=now, seed=seed, budget=budget, solver=solver, prices=prices)
    attempts = Attempts(given)
    plan = attempts.settle()
    stood = plan.stats.contested and snapshot.reservations
    moved = is_small(snapshot) and (plan.stats.rearranged or attempts.improved or stood)
    if solver is None or not (attempts.lost or moved or packed_subtrees(snapshot.tree)):
        return _with(plan, attempts.passes)
    # What is moved can change whose victims leave room for others and whom a retry keeps off which hosts, and a
    # selection looks at one priority at a time: by any of them the exact plan may have lost; and by a proof, after
    # which a reservation stays where it was until the end. So may greedy's with proofs, where it took several attempts.
    proving, nothing = (replace(budget, deterministic=budget.deterministic * part) for part in (1 / RETRY, 0))
    beside = [Attempts(replace(given, budget=proving, solver=ProofsOnly(solver)))]
    if is_small(snapshot):
        beside.append(Attempts(replace(given, budget=nothing, solver=None)))
    best = max(plan, *(one.settle() for one in beside), key=lambda one: score(snapshot, one, now=now))
    passes = sum((one.passes for one in beside), attempts.passes)
    return _with(plan if best is plan else _instead(best, plan), passes)


def _with(plan: Plan, passes: Passes) -> Plan:
    return replace(plan, stats=replace(plan.stats, passes=passes))


def _instead(greedy: Plan, exact: Plan) -> Plan:
    """The greedy plan, where gangs that it deferred are told that an arrangement with them could not land."""
    landing = sentences.LANDING
    told = {
        uid: replace(explanation, primary=landing)
        for uid, explanation in greedy.explanations.items()
        if explanation.primary.token is Token.SOLVER_DEFERRED
        and uid in exact.explanations
        and exact.explanations[uid].primary == landing
    }
    stats = replace(greedy.stats, note="the exact plan scored less than greedy's")
    return replace(greedy, explanations={**greedy.explanations, **told}, stats=stats)


class _OnDemand:
    """The exact solver, loaded at the first question: most cycles have none."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._solver: ExactSolver | None = None

    def settle(self, question: Question) -> Arrangement | Proof | Unknown:
        """See `ExactSolver`."""
        return self._load().settle(question)

    def lay(self, question: Layout) -> Places | Proof | Unknown:
        """See `ExactSolver`."""
        return self._load().lay(question)

    def improve(self, **settled: Any) -> Arrangement | Unknown:
        """See `ExactSolver`."""
        return self._load().improve(**settled)

    def _load(self) -> ExactSolver:
        if self._solver is None:
            from queuer.solver.cpsat import CpSat

            self._solver = CpSat(self._arrays)
        return self._solver


def _default_solver(arrays: Arrays) -> ExactSolver | None:
    return _OnDemand(arrays) if find_spec("ortools") is not None else None

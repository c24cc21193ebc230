"""`decide()`: from a snapshot to a plan, without I/O, clock or chance (DESIGN 4).

With the exact solver and, where that may have lost something, without it; the better plan counts.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from queuer.domain.reasons import Deferral, Explanation, Reason, Token
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Given
from queuer.solver.attempts import RETRY, Attempts, is_small
from queuer.solver.contested import Arrangement, ExactSolver, Layout, Places, Proof, Question, Unknown
from queuer.solver.explain import sentences
from queuer.solver.packed.worth import packed_subtrees
from queuer.solver.prices import Prices
from queuer.solver.problem import Budget, Passes, Plan, Snapshot, SolveStatus
from queuer.solver.proofs import ProofsOnly
from queuer.solver.score import Score, score
from queuer.solver.sound import check_moment, refusing

KEPT = 4
"""Prices tried, the last that proved something first."""
UNANSWERED = frozenset({Deferral.TIME, Deferral.SIZE, Deferral.LANDING})
"""Causes that a plan has where the exact solver is not asked everything, or not for its arrangements."""
EXACT = "the exact plan"


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
    if solver is None or not _may_have_lost(snapshot, plan, attempts):
        return _with(plan, attempts.passes)
    better, whose, passes = _beside(given, solver, score(snapshot, plan, now=now))
    passes += attempts.passes
    return _with(_instead(better, plan, whose=whose) if better else plan, passes)


def _beside(given: Given, solver: ExactSolver, than: Score) -> tuple[Plan | None, str, Passes]:
    """Greedy's plan if it scores more, with proofs for those whom it refuses, what it is called, and how far it came.

    In small clusters proofs are looked for once that is known. As they may keep a reservation where it was, the plan
    may come out worse with them; then it stays without.
    """
    proofs, whose = ProofsOnly(solver), "greedy's with proofs"
    proving, nothing = (
        replace(given, budget=replace(given.budget, deterministic=given.budget.deterministic * part))
        for part in (1 / RETRY, 0)
    )
    if not is_small(given.arrays.snapshot):
        attempts = Attempts(replace(proving, solver=proofs))
        return attempts.better(than), whose, attempts.passes
    attempts = Attempts(replace(nothing, solver=None))
    plan = attempts.better(than)
    proven = attempts.proven(replace(proving, solver=proofs)) if plan else None
    return (proven, whose, attempts.passes) if proven else (plan, "greedy's", attempts.passes)


def _may_have_lost(snapshot: Snapshot, plan: Plan, attempts: Attempts) -> bool:
    """Whether a plan with less of the exact solver may be better than this one. In large clusters there is no time to
    look wherever it may.
    """
    # Who was moved can change whom a retry keeps off which hosts.
    if attempts.lost:
        return True
    # A selection looks at one priority at a time.
    if packed_subtrees(snapshot.tree):
        return True
    if not is_small(snapshot):
        return False
    # Who was moved can change whose victims leave room for others.
    if plan.stats.rearranged or attempts.improved or not attempts.as_greedy:
        return True
    # After a proof a reservation stays where it was until the end.
    return bool(plan.stats.contested and snapshot.reservations)


def _with(plan: Plan, passes: Passes) -> Plan:
    return replace(plan, stats=replace(plan.stats, passes=passes))


def _instead(taken: Plan, exact: Plan, *, whose: str) -> Plan:
    """The plan that scored better. Who is deferred in it for want of answers that the exact solver gave in its own is
    told that an arrangement with it could not land, where it could not, else that another plan was taken.
    """
    told, causes = dict(taken.explanations), Counter(taken.stats.causes)
    for uid, explanation in taken.explanations.items():
        reason, before = _deferred(explanation), exact.explanations.get(uid)
        if reason is None or (before and (same := _deferred(before)) and same.params == reason.params):
            continue
        landing = before is not None and before.primary == sentences.LANDING
        instead = sentences.LANDING if landing else sentences.outscored(reason)
        all_hold = (explanation.primary, *explanation.others)
        first, *others = (instead if one is reason else one for one in all_hold)
        told[uid] = replace(explanation, primary=first, others=tuple(others))
        causes[reason.params["cause"]] -= 1
        causes[Deferral.LANDING if landing else Deferral.OUTSCORED] += 1
    status = taken.stats.status
    if status is SolveStatus.GREEDY and taken.stats.contested:
        status = SolveStatus.FEASIBLE
    note = f"{EXACT} scored less than {whose}"
    stats = replace(taken.stats, status=status, causes=dict(+causes), note=note)
    return replace(taken, explanations=told, stats=stats)


def _deferred(explanation: Explanation) -> Reason | None:
    """What it says of a gang that is deferred for want of an answer."""
    for reason in (explanation.primary, *explanation.others):
        if reason.token is Token.SOLVER_DEFERRED and reason.params["cause"] in UNANSWERED:
            return reason
    return None


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

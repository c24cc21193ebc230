"""`decide()`: from a snapshot to a plan, without I/O, clock or chance (DESIGN 4).

Attempt after attempt is made until one puts nobody off; the best sound plan counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from queuer.domain.reasons import Deferral, Explanation, Token
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Attempt
from queuer.solver.contested import Arrangement, Layout, Places, Proof, Question, Rearranger, Unknown
from queuer.solver.explain import sentences
from queuer.solver.packed.worth import packed_subtrees
from queuer.solver.prices import Prices
from queuer.solver.problem import (
    Budget,
    CycleStats,
    Passes,
    Plan,
    Snapshot,
    SolveStatus,
)
from queuer.solver.proofs import ProofsOnly
from queuer.solver.score import score
from queuer.solver.verify import Violation, verify

SMALL = 20_000
"""Nodes times waiting gangs above which one layout is tried only, and greedy's not beside it."""
RETRY = 4
"""Part of the exact solver's budget that each layout after the first has at least."""
KEPT = 4
"""Prices tried, the last that proved something first."""
ATTEMPTS = 5
"""Layouts tried in one cycle: gangs that cannot land beside others are placed apart, then put off."""


def decide(
    snapshot: Snapshot,
    *,
    now: float,
    seed: int,
    budget: Budget,
    rearranger: Rearranger | None = None,
    arrays: Arrays | None = None,
) -> Plan:
    """The plan for this moment. The same arguments give the same plan.

    `rearranger`: the exact solver for contested gangs; by default the one of `queuer.solver.cpsat` if there
    is deterministic budget and ortools is installed. Without one, contested gangs wait as deferred. `arrays`: those
    of this very snapshot, where the caller keeps them.
    """
    arrays = arrays or Arrays.of(snapshot)
    assert arrays.snapshot is snapshot
    solver = rearranger or (_default_rearranger(arrays) if budget.deterministic > 0 else None)
    prices: deque[Prices] = deque(maxlen=KEPT)
    plan, passes, lost = _settled(arrays, now=now, seed=seed, budget=budget, solver=solver, prices=prices)
    moved = plan.stats.rearranged and _is_small(snapshot)
    if solver is None or not (lost or moved or packed_subtrees(snapshot.tree)):
        return _with(plan, passes)
    # What is moved can change whose victims leave room for others and whom a retry keeps off which hosts, and a
    # selection looks at one priority at a time: by any of them the exact plan may have lost.
    proving = replace(budget, deterministic=budget.deterministic / RETRY)
    greedy, beside, _ = _settled(
        arrays, now=now, seed=seed, budget=proving, solver=ProofsOnly(solver), prices=prices
    )
    better = score(snapshot, greedy, now=now) > score(snapshot, plan, now=now)
    return _with(_instead(greedy, plan) if better else plan, passes + beside)


def _with(plan: Plan, passes: Passes) -> Plan:
    return replace(plan, stats=replace(plan.stats, passes=passes))


def _is_small(snapshot: Snapshot) -> bool:
    return len(snapshot.nodes) * len(snapshot.pending) <= SMALL


def _instead(greedy: Plan, exact: Plan) -> Plan:
    """The greedy plan, where gangs that it deferred are told that an arrangement with them could not land."""
    landing = sentences.put_off().primary
    told = {
        uid: replace(explanation, primary=landing)
        for uid, explanation in greedy.explanations.items()
        if explanation.primary.token is Token.SOLVER_DEFERRED
        and uid in exact.explanations
        and exact.explanations[uid].primary == landing
    }
    stats = replace(greedy.stats, note="the exact plan scored less than greedy's")
    return replace(greedy, explanations={**greedy.explanations, **told}, stats=stats)


def _settled(
    arrays: Arrays,
    *,
    now: float,
    seed: int,
    budget: Budget,
    solver: Rearranger | None,
    prices: deque[Prices],
) -> tuple[Plan, Passes, bool]:
    """The best sound one of the layouts tried until one puts nobody off; how far the passes of all came; whether the
    solver had a part in trying others. `prices`: by which something was proven in another.
    """
    snapshot = arrays.snapshot
    crowded: dict[str, frozenset[str]] = {}
    everywhere = frozenset(arrays.frame.index)
    wrong: Sequence[Violation] = ()
    tries = ATTEMPTS if _is_small(snapshot) else 1
    tried: list[Plan] = []
    moved = refused = False
    given_up = ""
    passes = Passes()
    for attempt in range(ATTEMPTS):
        given = replace(
            budget, deterministic=max(budget.deterministic - passes.spent, budget.deterministic / RETRY)
        )
        made = Attempt(
            arrays, now=now, seed=seed, budget=given, rearranger=solver, crowded=crowded, prices=prices
        )
        plan, late = made.run()
        passes += made.passes
        moved |= plan.stats.rearranged > 0
        tried.insert(0, plan)
        if not late or attempt >= tries - 1:
            if len(tried) > 1:
                tried.sort(key=lambda p: score(snapshot, p, now=now), reverse=True)
            for one in tried:
                wrong = verify(snapshot, one, now=now)
                if not wrong:
                    if arrays.snapshot is not snapshot:
                        one = replace(
                            one, stats=replace(one.stats, note=f"without what was held: {given_up}")
                        )
                    return one, passes, refused or (moved and (attempt > 0 or bool(late)))
            offenders = _offenders(tried[-1], wrong)
            if refused:  # to put them off was not enough
                arrays = _without(arrays, offenders)
                given_up = "; ".join(map(str, wrong[:3]))
            refused = True
            solver, tried, late = None, [], dict.fromkeys(offenders, everywhere)
        for uid, hosts in late.items():
            crowded[uid] = everywhere if attempt > 1 else crowded.get(uid, frozenset()) | hosts
    nothing = _nothing(snapshot, now=now, note=f"refused by the verifier: {'; '.join(map(str, wrong[:3]))}")
    return nothing, passes, True


def _offenders(plan: Plan, wrong: Sequence[Violation]) -> list[str]:
    """The waiting gangs for which rules are broken, those for whose sake a victim would wrongly go included. Where
    nobody is named, all that start or are bound.
    """
    waiting, named = set(plan.order), {v.uid for v in wrong}
    beneficiaries = {e.beneficiary for e in plan.evictions if e.uid in named}
    settled = {a.uid for a in plan.admissions} | {b.uid for b in plan.bonds}
    return sorted((named & waiting) | beneficiaries or settled)


def _without(arrays: Arrays, uids: Sequence[str]) -> Arrays:
    """As if these had no bond and no reservation. The verifier still asks for a bond that stands."""
    snapshot = arrays.snapshot
    left = replace(
        snapshot,
        bonds=tuple(b for b in snapshot.bonds if b.uid not in uids),
        reservations=tuple(r for r in snapshot.reservations if r.uid not in uids),
    )
    return replace(arrays, snapshot=left)


def _nothing(snapshot: Snapshot, *, now: float, note: str) -> Plan:
    """The plan that starts nobody and keeps what stands: what is left when no sound plan was found."""
    waiting = [p.workload.uid for p in snapshot.pending]
    held = {b.uid: b for b in snapshot.bonds if b.uid in waiting and b.deadline > now}
    later = Explanation(primary=sentences.deferred(Deferral.PLAN))
    return Plan(
        admissions=(),
        evictions=(),
        bonds=tuple(held.values()),
        reservations=tuple(r for r in snapshot.reservations if r.uid in waiting),
        explanations={uid: sentences.bound(held[uid]) if uid in held else later for uid in waiting},
        order=tuple(waiting),
        stats=CycleStats(
            status=SolveStatus.FAILED,
            considered=len(waiting),
            deferred=len(waiting),
            causes={Deferral.PLAN: len(waiting)},
            note=note,
        ),
    )


class _OnDemand:
    """The exact solver, loaded at the first question: most cycles have none."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._solver: Rearranger | None = None

    def settle(self, question: Question) -> Arrangement | Proof | Unknown:
        """See `Rearranger`."""
        return self._load().settle(question)

    def lay(self, question: Layout) -> Places | Proof | Unknown:
        """See `Rearranger`."""
        return self._load().lay(question)

    def improve(self, **settled: Any) -> Arrangement | Unknown:
        """See `Rearranger`."""
        return self._load().improve(**settled)

    def _load(self) -> Rearranger:
        if self._solver is None:
            from queuer.solver.cpsat import CpSat

            self._solver = CpSat(self._arrays)
        return self._solver


def _default_rearranger(arrays: Arrays) -> Rearranger | None:
    return _OnDemand(arrays) if find_spec("ortools") is not None else None

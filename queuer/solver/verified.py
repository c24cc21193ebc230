"""Gangs that the verifier refuses are taken out of a plan: they wait, and the rest stands."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from queuer.domain.errors import QueuerError
from queuer.domain.reasons import Explanation, Token, simple
from queuer.solver.records import Plan, Snapshot
from queuer.solver.verify import Violation, verify

ROUNDS = 8
"""Times that gangs are taken out; by then nothing new stands."""


class UnsoundPlan(QueuerError):
    """Not even the plan that starts nobody is sound; the violations say why."""

    code = "unsound_plan"


def verified(plan: Plan, snapshot: Snapshot, *, now: float) -> Plan:
    """The plan without the gangs that break a rule. Raises UnsoundPlan where that helps nothing."""
    broken: tuple[Violation, ...] = ()
    waiting = frozenset(pending.workload.uid for pending in snapshot.pending)
    for _ in range(ROUNDS):
        broken = verify(snapshot, plan, now=now)
        if not broken:
            return plan
        named = {violation.uid for violation in broken}
        plan = _without(plan, named, said=str(broken[0]), waiting=waiting)
    nothing = _without(plan, _new(plan, snapshot), said=str(broken[0]), waiting=waiting)
    if left := verify(snapshot, nothing, now=now):
        raise UnsoundPlan(f"{len(left)} rules broken, first {left[0]}")
    return nothing


def _new(plan: Plan, snapshot: Snapshot) -> set[str]:
    """All that this plan starts, binds or reserves for anew."""
    standing = {bond.uid for bond in snapshot.bonds}
    return (
        {admission.uid for admission in plan.admissions}
        | {bond.uid for bond in plan.bonds if bond.uid not in standing}
        | {reservation.uid for reservation in plan.reservations}
    )


def _without(plan: Plan, uids: Collection[str], *, said: str, waiting: Collection[str]) -> Plan:
    """The plan without these gangs: who was to leave for them stays. Those of them that wait are told so."""
    gone = set(uids) | {e.beneficiary for e in plan.evictions if e.uid in uids}
    refused = [uid for uid in gone if uid in waiting]
    return replace(
        plan,
        admissions=tuple(a for a in plan.admissions if a.uid not in gone),
        evictions=tuple(e for e in plan.evictions if e.beneficiary not in gone),
        bonds=tuple(b for b in plan.bonds if b.uid not in gone),
        reservations=tuple(r for r in plan.reservations if r.uid not in gone),
        explanations={**plan.explanations, **dict.fromkeys(refused, _told(said))},
        stats=replace(plan.stats, refused=plan.stats.refused + len(refused), note=f"refused: {said}"),
    )


def _told(said: str) -> Explanation:
    text = "The plan for it broke a rule and was taken back; the next cycle decides again."
    return simple(Token.SOLVER_DEFERRED, text, cause="Plan", said=said)

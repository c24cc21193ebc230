"""A plan as the rows of its commit.

What of it still holds, the patches, the charges, the reasons that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from queuer.controller.cycle.forecast import is_hit, with_estimate
from queuer.controller.cycle.namespace_quota import Reckoning
from queuer.controller.cycle.overrun import overrun
from queuer.controller.cycle.reasons import Owners, to_write
from queuer.controller.cycle.snapshot import offered
from queuer.controller.cycle.whom import for_whom
from queuer.controller.landing.settle import evicting
from queuer.controller.ledger import rows
from queuer.controller.ledger.commit import about
from queuer.controller.ledger.new_cycle import NewCycle
from queuer.controller.memory.live import JobView, Live, Placement
from queuer.controller.memory.out_of_use import out_of_use
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Admission, Bond
from queuer.domain.estimates import StartRange
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import Cause, State, Workload
from queuer.kube.objects import ResourceQuota
from queuer.solver.records import Plan, Snapshot
from queuer.store.cycles import CycleRecord, NewAdmission, NewEviction

_EVICTABLE = frozenset({State.ADMITTED, State.PLACING, State.RUNNING})
_VICTIMS_STAY = simple(
    Token.PENDING_EVALUATION,
    "Work that would have left its place stays, as another gang does not start; the next cycle decides.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a decision was asked, and when. `cycle`: its number; `barred`: who was not offered, and why."""

    snapshot: Snapshot
    cycle: int
    at: float
    trigger: str
    barred: Mapping[str, Explanation] = field(default_factory=dict)


class Patches(Protocol):
    """How jobs are started and suspended; see `queuer.controller.apply.jobs`."""

    def admit(self, live: Live, placement: Placement, *, domains: tuple[str, ...]) -> Mapping[str, Any]:
        """The PATCH that unsuspends the job inside its pins."""

    def evict(self, live: Live) -> Mapping[str, Any]:
        """The PATCH that suspends it."""

    def as_decided(self, job: JobView) -> bool:
        """Whether the job still asks for what memory holds of it."""

    def resource_quotas(self) -> Iterable[ResourceQuota]:
        """The ResourceQuotas of the namespaces as they are now."""


def answer(
    asked: Asked,
    plan: Plan,
    state: ClusterState,
    *,
    patches: Patches,
    epoch: int,
    now: float,
    new_id: Callable[[], str],
    retell: float,
    ranges: Mapping[str, StartRange] = MappingProxyType({}),
) -> NewCycle:
    """What of the plan is committed. Workloads that changed while it was made are left for the next one.

    `retell`: see `Settings`; `ranges`: newest forecast of starts, told with the reasons. Raises Mishandled naming a
    workload for which no row or PATCH can be made.
    """
    current = {
        pending.workload.uid
        for pending in asked.snapshot.pending
        if _is_offered(pending.workload.uid, state, now=now)
        and _asks_the_same(state.live[pending.workload.uid].workload, pending.workload)
    }
    reckoning, refused = Reckoning(state, patches.resource_quotas()), dict[str, Explanation]()
    admissions: list[NewAdmission] = []
    evictions: list[NewEviction] = []
    after: dict[str, Live] = {}
    standing = {uid for uid in current if _stands(uid, state, patches)}
    held = {bond.uid: bond for bond in asked.snapshot.bonds if bond.deadline > now}
    kept: list[Bond] = []
    for admission in plan.admissions:
        if admission.uid not in standing:
            continue
        live = state.live[admission.uid]
        if (why := reckoning.refusal(live.workload)) is not None:
            refused[live.uid] = why
            if live.uid in held:  # work was lost for it: what it could have taken waits for it
                kept.append(replace(held[live.uid], assignments=admission.assignments))
            continue
        with about(live.uid):
            admitted, started = _admitted(
                admission, live, state, asked=asked, patches=patches, epoch=epoch, now=now, id=new_id()
            )
        admissions.append(admitted)
        reckoning.take(live.workload, {a.pod_set: a.count for a in admission.assignments})
        after[live.uid] = started
    made, unborne = _bonds(asked, plan, state, standing=standing, reckoning=reckoning)
    bonds, refused = (*kept, *made), {**refused, **unborne}
    bound = {bond.uid for bond in bonds}
    reservations = tuple(r for r in plan.reservations if r.uid in standing)
    late = overrun(state, (r for r in reservations if r.uid not in after), now=now)
    leave = {uid: (beneficiary, Cause.MAX_RUNTIME.value) for uid, beneficiary in late.items()}
    # Whoever is gone or asks for something else needs nobody to go.
    leave |= {e.uid: (e.beneficiary, e.rule.value) for e in plan.evictions if e.beneficiary in bound}
    displaced = dict[str, Explanation]()
    for uid, (beneficiary, cause) in leave.items():
        victim = _victim(uid, state)
        if victim is None:
            continue
        with about(uid):
            note = for_whom(cause, victim.workload, state.live[beneficiary].workload)
            patch = patches.evict(victim)
        evictions.append(NewEviction(uid=uid, cause=cause, patch=patch, beneficiary=beneficiary, note=note))
        text = f"{note}; it is decided on again when it has left"
        displaced[uid] = simple(Token.PENDING_EVALUATION, text)
        after[uid] = replace(
            evicting(victim, now=now), displaced_by=frozenset({beneficiary}), explanation=displaced[uid]
        )
    barred = {uid for uid in asked.barred if _is_offered(uid, state, now=now)}
    reasons, owners = {**plan.explanations, **refused, **asked.barred}, Owners()
    told = {
        uid: with_estimate(owners.told(reason, state.live[uid].workload.namespace), ranges.get(uid), now=now)
        for uid, reason in reasons.items()
        if uid in current or uid in barred  # of all others something newer is known
    }
    explanations = to_write(told, state, after, now=now, every=retell)
    for uid, explanation in explanations.items():
        after[uid] = replace(state.live[uid], explanation=explanation, told=now)
    return NewCycle(
        record=_record(asked, plan, state, now=now),
        admissions=tuple(admissions),
        evictions=tuple(evictions),
        explanations={**explanations, **displaced},
        bonds=bonds,
        reservations=reservations,
        after=tuple(after.values()),
    )


def _is_offered(uid: str, state: ClusterState, *, now: float) -> bool:
    """Whether a workload still is one that decisions are asked about: neither held nor found misconfigured since."""
    live = state.live.get(uid)
    return live is not None and offered(live, state, now=now)


def _asks_the_same(now: Workload, then: Workload) -> bool:
    """Whether it is the same job: an estimate, which is learned while it waits, makes it no other."""
    return now == then or now == replace(then, estimate=now.estimate)


def _stands(uid: str, state: ClusterState, patches: Patches) -> bool:
    """Whether a workload still asks for what the decision was asked, also by what was heard of its job since."""
    job = state.jobs.get(uid)
    if job is None:
        return False
    return uid not in state.unread or (job.outcome is None and patches.as_decided(job))


def _admitted(
    admission: Admission,
    live: Live,
    state: ClusterState,
    *,
    asked: Asked,
    patches: Patches,
    epoch: int,
    now: float,
    id: str,
) -> tuple[NewAdmission, Live]:
    domains = rows.domains(admission.assignments, nodes=state.nodes, topology=state.rules.topology)
    placement = Placement(id=id, epoch=epoch, cycle=asked.cycle, at=now, assignments=admission.assignments)
    row = NewAdmission(
        id=id,
        uid=live.uid,
        attempt=live.attempt,
        assignments=tuple(map(rows.assignment_json, admission.assignments)),
        charges=rows.charges(live.workload, admission.assignments),
        patch=patches.admit(live, placement, domains=domains),
        domains=domains,
        hit=is_hit(live.explanation, started=now),
    )
    return row, replace(
        live, state=State.ADMITTED, placement=placement, explanation=None, rest=None, barred=None
    )


def _bonds(
    asked: Asked, plan: Plan, state: ClusterState, *, standing: Container[str], reckoning: Reckoning
) -> tuple[list[Bond], dict[str, Explanation]]:
    """The plan's bonds that are kept or made, and why others are not.

    A new one is made where the namespace's ResourceQuota bears it too, and if all leave whose room it needs: who would
    have gone for a gang that is not bound may not have to go for another.
    """
    evicted = {e.uid: e.beneficiary for e in plan.evictions if _victim(e.uid, state) is not None}
    earlier = {bond.uid for bond in asked.snapshot.bonds}.difference(evicted.values())
    bonds, refused = list[Bond](), dict[str, Explanation]()
    for bond in plan.bonds:
        if bond.uid not in standing:
            continue
        workload = state.live[bond.uid].workload
        if bond.uid not in earlier:
            if (why := reckoning.refusal(workload, victims=bond.victims)) is not None:
                refused[bond.uid] = why
                continue
            reckoning.hold(workload, bond)
        bonds.append(bond)
    while True:
        bound = {bond.uid for bond in bonds}
        staying = {uid for uid, beneficiary in evicted.items() if beneficiary not in bound}
        left_out = {b.uid for b in bonds if b.uid not in earlier and not staying.isdisjoint(b.victims)}
        if not left_out:
            return bonds, refused
        refused |= dict.fromkeys(left_out, _VICTIMS_STAY)
        bonds = [bond for bond in bonds if bond.uid not in left_out]


def _victim(uid: str, state: ClusterState) -> Live | None:
    """Who is evicted; None where there is nothing left to evict."""
    live, there = state.live.get(uid), uid in state.jobs and uid not in state.quarantine
    return live if live is not None and live.state in _EVICTABLE and there else None


def _record(asked: Asked, plan: Plan, state: ClusterState, *, now: float) -> CycleRecord:
    return CycleRecord(
        id=asked.cycle,
        started_at=asked.at,
        finished_at=now,
        trigger=asked.trigger,
        status=plan.stats.status.value,
        waiting=len(plan.explanations),
        stats={**msgspec.to_builtins(plan.stats, enc_hook=dict), "out": out_of_use(state)},
        capacity=state.capacity_by_flavor,
    )

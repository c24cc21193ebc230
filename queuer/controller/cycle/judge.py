"""The part of a plan that still holds when it comes back: the world has moved on while the solver decided. Beside it
work goes that is past its own bound.

Pure. `build` makes the round of what is judged here. A workload that changed meanwhile is left for the next cycle.
It is neither started nor held for, nobody is evicted for it, and it keeps its newer reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol

from queuer.controller.cycle.namespace_quota import Reckoning
from queuer.controller.cycle.snapshot import is_candidate
from queuer.controller.memory.live import JobView, Live, lingers
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Admission, Bond, LostWork, Reservation
from queuer.domain.intake import check
from queuer.domain.quantity import NOTHING, add
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.rules import Rules
from queuer.domain.workload import Cause, State, Workload
from queuer.kube.objects import ResourceQuota
from queuer.kube.workloads import NamespaceFacts
from queuer.solver.records import Plan, Snapshot
from queuer.solver.verified import verified

_VICTIMS_STAY = simple(
    Token.PENDING_EVALUATION,
    "Work that would have left its place stays, as another gang does not start; the next cycle decides.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """The question that a decision answers. `cycle`: its number; `not_asked`: who was left out of it, and why;
    `whole`: those that were offered with fewer pods, as they were.
    """

    snapshot: Snapshot
    cycle: int
    at: float
    trigger: str
    not_asked: Mapping[str, Explanation] = field(default_factory=dict)
    whole: Mapping[str, Workload] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A gang to evict. `cause`: the rule of the plan, or a `Cause`; `lost`: the work that this costs, by a plan."""

    victim: Live
    beneficiary: str
    cause: str
    lost: LostWork | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The part of a plan that is carried out. Bonds and reservations are all that hold from then on. `reasons`: of
    workloads that still wait as the decision saw them.
    """

    admissions: tuple[Admission, ...]
    leaving: tuple[Leaving, ...]
    bonds: tuple[Bond, ...]
    reservations: tuple[Reservation, ...]
    reasons: Mapping[str, Explanation]


class Jobs(Protocol):
    """Facts of jobs beside memory; see `queuer.controller.apply.jobs`."""

    def as_decided(self, job: JobView) -> bool:
        """Whether the job still asks for what memory holds of it."""

    def facts(self, job: JobView) -> NamespaceFacts:
        """The facts beside the job on which its meaning depends."""

    def resource_quotas(self) -> Iterable[ResourceQuota]:
        """The ResourceQuotas of the namespaces as they are now."""


def judge(request: DecisionRequest, plan: Plan, state: ClusterState, *, jobs: Jobs, now: float) -> Judgement:
    """The part of the plan that is carried out. Raises UnsoundPlan where newer rules leave none."""
    plan = _kept(plan, request, state.rules)
    pending = [request.whole.get(p.workload.uid, p.workload) for p in request.snapshot.pending]
    current = {
        w.uid for w in pending
        if _waits(w.uid, state, now=now)
        and ((own := state.live[w.uid].workload) is w or own.ask() == w.ask())
    }  # fmt: skip
    stands = cache(lambda uid: uid in current and _stands(uid, state, jobs))
    reckoning = Reckoning(state, jobs.resource_quotas())
    held = {bond.uid: bond for bond in request.snapshot.bonds if bond.deadline > now}
    admissions, kept, refused = _starts(plan, state, stands=stands, held=held, reckoning=reckoning)
    made, not_bound = _bonds(request, plan, state, stands=stands, reckoning=reckoning)
    bonds = (*kept, *made)
    reservations = tuple(r for r in plan.reservations if stands(r.uid))
    started = {admission.uid for admission in admissions}
    late = overrun(state, (r for r in reservations if r.uid not in started), now=now)
    leave: dict[str, tuple[str, str, LostWork | None]] = {
        uid: (beneficiary, Cause.MAX_RUNTIME.value, None) for uid, beneficiary in late.items()
    }
    # A gang that is gone or asks for something else needs nobody to go.
    bound = {bond.uid for bond in bonds}
    leave |= {e.uid: (e.beneficiary, e.rule.value, e.lost) for e in plan.evictions if e.beneficiary in bound}
    told = current | {uid for uid in request.not_asked if _waits(uid, state, now=now)}
    reasons = {**plan.explanations, **refused, **not_bound, **request.not_asked}
    return Judgement(
        admissions=tuple(admissions),
        leaving=tuple(
            Leaving(victim=victim, beneficiary=beneficiary, cause=cause, lost=lost)
            for uid, (beneficiary, cause, lost) in leave.items()
            if (victim := _victim(uid, state)) is not None
        ),
        bonds=bonds,
        reservations=reservations,
        reasons={
            uid: why for uid, why in reasons.items() if uid in told
        },  # of others something newer is known
    )


def _kept(plan: Plan, request: DecisionRequest, rules: Rules) -> Plan:
    """The part of the plan that these rules allow too: a queue may have been held, or cut, while it was made."""
    snapshot = request.snapshot
    if snapshot.tree is rules.tree:
        return plan
    newer = replace(snapshot, tree=rules.tree, flavors=rules.flavors, topology=rules.topology)
    return verified(plan, newer, now=request.at)


def _waits(uid: str, state: ClusterState, *, now: float) -> bool:
    """Whether decisions are still asked about a workload: neither held nor found misconfigured since."""
    live = state.live.get(uid)
    return live is not None and is_candidate(live, state, now=now)


def _stands(uid: str, state: ClusterState, jobs: Jobs) -> bool:
    """Whether a workload still asks for what the decision was asked, also by what was heard of its job since, and its
    queue still lets it.
    """
    job = state.jobs.get(uid)
    if job is None or uid not in state.unread:
        return job is not None
    if job.outcome is not None or not jobs.as_decided(job):
        return False
    rules, priorities = state.rules, jobs.facts(job).values
    return not check(
        state.live[uid].workload, rules.tree, rules.topology, state.nodes.values(), priorities=priorities,
        groups=job.groups, waits=True,
    )  # fmt: skip


def _starts(
    plan: Plan,
    state: ClusterState,
    *,
    stands: Callable[[str], bool],
    held: Mapping[str, Bond],
    reckoning: Reckoning,
) -> tuple[list[Admission], list[Bond], dict[str, Explanation]]:
    """Gangs that start, and those that their namespace's ResourceQuota keeps back: their bonds, and why."""
    admissions, kept, refused = list[Admission](), list[Bond](), dict[str, Explanation]()
    for admission in plan.admissions:
        if not stands(admission.uid):
            continue
        workload = state.live[admission.uid].workload
        if (why := reckoning.refusal(workload, admission.assignments)) is None:
            reckoning.take(workload, admission.assignments)
            admissions.append(admission)
            continue
        refused[admission.uid] = why
        if admission.uid in held:  # work was lost for it: what it could have taken waits for it
            kept.append(replace(held[admission.uid], assignments=admission.assignments))
    return admissions, kept, refused


def _bonds(
    request: DecisionRequest,
    plan: Plan,
    state: ClusterState,
    *,
    stands: Callable[[str], bool],
    reckoning: Reckoning,
) -> tuple[list[Bond], dict[str, Explanation]]:
    """The plan's bonds that are kept or made, and why others are not.

    A new one is made where the namespace's ResourceQuota bears it too. It is dropped if one of the victims it relies on
    now stays, because that victim's own bond was dropped.
    """
    evicted = {e.uid: e.beneficiary for e in plan.evictions if _victim(e.uid, state) is not None}
    earlier = {bond.uid for bond in request.snapshot.bonds}.difference(evicted.values())
    bonds, refused = list[Bond](), dict[str, Explanation]()
    for bond in plan.bonds:
        if not stands(bond.uid):
            continue
        workload = state.live[bond.uid].workload
        if bond.uid not in earlier:
            if (why := reckoning.refusal(workload, bond.assignments, victims=bond.victims)) is not None:
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
    """The workload to evict; None where there is nothing left to evict."""
    live, job = state.live.get(uid), state.jobs.get(uid)
    if live is None or job is None or uid in state.quarantine:
        return None
    return live if live.state.evictable or lingers(live, job) else None


LATE = 60.0
"""Seconds that work is given beyond its bound, beside the grace of its pods: it may be about to end."""


def overrun(state: ClusterState, reservations: Iterable[Reservation], *, now: float) -> dict[str, str]:
    """Work past the bound that it declared, where a reservation that rests on its word waits for its room: uids of who
    has to go now, preemptible or not, each with that of the gang for whose sake.
    """
    due = [r for r in reservations if r.start <= now and r.uid in state.live]
    late = [live for live in state.live.values() if _is_late(live, state, now=now)] if due else []
    found: dict[str, str] = {}
    for reservation in due if late else ():
        short = _short(reservation, state)
        for live in late:
            if live.uid not in found and any(_held(live, short, state)):
                found[live.uid] = reservation.uid
    return found


def _is_late(live: Live, state: ClusterState, *, now: float) -> bool:
    most, placement = live.workload.max_runtime, live.placement
    if most is None or placement is None or live.state not in (State.PLACING, State.RUNNING):
        return False
    grace = max((pod.grace for pod in state.pods.of(live.workload)), default=0.0)
    return now >= (live.running or placement.at) + most + LATE + grace


def _short(reservation: Reservation, state: ClusterState) -> Mapping[str, frozenset[str]]:
    """By node of the reservation the resources of which its gang finds too little there."""
    requests = {p.name: p.requests for p in state.live[reservation.uid].workload.pod_sets}
    needs: dict[str, Mapping[str, int]] = {}
    for a in reservation.assignments:
        for node, count in a.nodes.items():
            needs[node] = add(needs.get(node, NOTHING), requests.get(a.pod_set, NOTHING), times=count)
    return {name: _missing(need, state, name) for name, need in needs.items() if name in state.nodes}


def _missing(need: Mapping[str, int], state: ClusterState, name: str) -> frozenset[str]:
    taken, there = add(need, state.pods.used(name)), state.nodes[name].allocatable
    return frozenset(resource for resource in need if taken[resource] > there.get(resource, 0))


def _held(live: Live, short: Mapping[str, frozenset[str]], state: ClusterState) -> Iterator[bool]:
    """For each pod whether it holds what is short on its node."""
    for pod in state.pods.of(live.workload):
        lacking = short.get(pod.charged_to or "", frozenset())
        yield any(pod.requests.get(resource) for resource in lacking)

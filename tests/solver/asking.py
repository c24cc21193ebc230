"""Questions to the exact solver as `decide()` puts them, and its arrangements judged as plans by the verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import Workload
from queuer.solver.contested import Arrangement, Question, Settled, Standing, Variant
from queuer.solver.problem import (
    Admission,
    Assignment,
    Bond,
    CycleStats,
    Eviction,
    EvictionRule,
    Plan,
    Snapshot,
    SolveStatus,
)
from queuer.solver.verify import Violation, verify
from tests.solver.plans import NOW


def variant(workload: Workload) -> Variant:
    return Variant(
        flavors={p.name: "default" for p in workload.pod_sets},
        counts={p.name: p.count for p in workload.pod_sets},
    )


def place(nodes: dict[str, int], name: str = "main") -> Assignment:
    return Assignment(pod_set=name, flavor="default", nodes=nodes)


def settled(
    snap: Snapshot, uid: str, *rows: Assignment, victims: Sequence[tuple[str, EvictionRule]] = ()
) -> Settled:
    pending = next(p for p in snap.pending if p.workload.uid == uid)
    gone = tuple(Eviction(uid=v, beneficiary=uid, rule=rule) for v, rule in victims)
    return Settled(
        pending=pending, variant=variant(pending.workload), assignments=rows, bound=bool(gone), victims=gone
    )


def question(
    snap: Snapshot,
    uid: str,
    *,
    before: Sequence[Settled] = (),
    standing: Sequence[Standing] = (),
    evict: bool = False,
    budget: float = 5.0,
) -> Question:
    pending = next(p for p in snap.pending if p.workload.uid == uid)
    return Question(
        snapshot=snap,
        now=NOW,
        seed=1,
        settled=tuple(before),
        standing=tuple(standing),
        gang=pending,
        variants=(variant(pending.workload),),
        evict=evict,
        budget=budget,
    )


def judged(snap: Snapshot, found: Arrangement, *, bound: Sequence[str] = ()) -> tuple[Violation, ...]:
    """The arrangement as a plan before the verifier, each gang pinned to its hosts and in a wave of its own."""
    pinned = {
        uid: tuple(replace(r, hosts=tuple(sorted(r.nodes))) for r in rows)
        for uid, rows in found.assignments.items()
    }
    victims = {uid: tuple(e.uid for e in found.evictions if e.beneficiary == uid) for uid in bound}
    uids = [p.workload.uid for p in snap.pending]

    def why(uid: str) -> Explanation:
        token = Token.WAITING_FOR_PREEMPTED_WORKLOADS if uid in bound else Token.WAITING_FOR_QUOTA
        return Explanation(primary=Reason(token=token, text="It waits."))

    plan = Plan(
        admissions=tuple(
            Admission(uid=u, assignments=rows, wave=n)
            for n, (u, rows) in enumerate(pinned.items())
            if u not in bound
        ),
        evictions=found.evictions,
        bonds=tuple(Bond(uid=u, assignments=pinned[u], victims=victims[u], deadline=NOW + 60) for u in bound),
        reservations=(),
        explanations={u: why(u) for u in uids if u not in pinned or u in bound},
        order=tuple(uids),
        stats=CycleStats(status=SolveStatus.OPTIMAL),
    )
    return verify(snap, plan, now=NOW)

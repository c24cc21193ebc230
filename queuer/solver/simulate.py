"""Would this job start now? The decision on what a stored cycle left, with one more gang, perhaps under other rules.

Nothing is written, and nothing is held for the answer: the next cycle may find things changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from queuer.domain.assignments import Assignment
from queuer.domain.quantity import Resources, add
from queuer.domain.reasons import Explanation
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.explain.advice import WITHOUT_SOLVER, left_by
from queuer.solver.explain.detail import Explainer
from queuer.solver.offered import offered
from queuer.solver.records import Pending, Plan, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.solver.whatif import under

UID = "simulated"
"""Of the gang that is asked about; no job's uid is like it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What would be evicted in one queue: how many gangs, and what they hold together."""

    queue: str
    gangs: int
    amounts: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`workload`: has the uid `UID`; `rules`: None = those of the cycle."""

    workload: Workload
    rules: Rules | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """`places`: where it would start, at once or when those of `leaving` are gone; empty = it waits, for a reason."""

    places: tuple[Assignment, ...] = ()
    leaving: tuple[Leaving, ...] = ()
    explanation: Explanation | None = None


class Simulations:
    """Of one stored cycle, which has a plan; one thread at a time."""

    def __init__(self, cycle: StoredCycle) -> None:
        assert cycle.plan is not None
        self._now, self._seed, self._plan = cycle.now, cycle.seed, cycle.plan
        self._left = left_by(cycle.snapshot, cycle.plan, now=cycle.now)
        self._arrays = Arrays.of(self._left)

    def ask(self, question: Question) -> Simulated:
        """Raises InvalidInput or UnsoundPlan where it cannot be decided."""
        rules, snapshot = question.rules, self._left
        if rules is not None and not rules.same_as(snapshot.rules):
            snapshot = under(snapshot, rules)
        asked = replace(question.workload, uid=UID, submitted=self._now)
        snapshot = replace(snapshot, pending=(*snapshot.pending, Pending(workload=asked)))
        snapshot, beyond = offered(snapshot, self._plan)
        if UID in beyond:
            return Simulated(explanation=beyond[UID])
        arrays = self._arrays.follow(snapshot)
        plan = decide(snapshot, now=self._now, seed=self._seed, budget=WITHOUT_SOLVER, arrays=arrays)
        admitted = next((a for a in plan.admissions if a.uid == UID), None)
        if admitted is not None:
            return Simulated(places=admitted.assignments)
        bond = next((b for b in plan.bonds if b.uid == UID), None)
        if bond is not None:
            return Simulated(places=bond.assignments, leaving=_leaving(snapshot, plan))
        explainer = Explainer(snapshot, plan, now=self._now, seed=self._seed)
        return Simulated(explanation=explainer.explain(UID))


def _leaving(snapshot: Snapshot, plan: Plan) -> tuple[Leaving, ...]:
    gone = {e.uid for e in plan.evictions if e.beneficiary == UID}
    gangs, amounts = Counter[str](), dict[str, Mapping[str, int]]()
    for run in snapshot.admitted:
        workload = run.workload
        if workload.uid in gone:
            gangs[workload.queue] += 1
            sets = {p.name: p.requests for p in workload.pod_sets}
            for name, count in run.counts.items():
                amounts[workload.queue] = add(amounts.get(workload.queue, {}), sets[name], times=count)
    return tuple(Leaving(queue=q, gangs=n, amounts=amounts[q]) for q, n in sorted(gangs.items()))

"""An upper bound on what any choice of gangs can start, for the gap that `bench.quality` reports.

Domains are pooled: GPUs by pod size on all nodes together, gangs that need a domain by what the domains hold of their
size, quota limits. GPUs alone; the bound of a priority takes what was started at higher ones as given.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import floor

from ortools.sat.python import cp_model

from bench.instances import GPU, KEYS, PRIORITIES
from queuer.domain.workload import Workload
from queuer.solver.records import Snapshot

TIME = 5.0
"""Deterministic time for each priority."""
SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Form:
    """What makes gangs alike. `pods`: (pods, GPUs of one) by pod set."""

    queue: str
    priority: int
    level: str | None
    pods: tuple[tuple[int, int], ...]

    def slots(self, size: int) -> int:
        """Slots of `size` GPUs that it takes."""
        return sum(count * (gpus // size) for count, gpus in self.pods)


Counts = Mapping[Form, cp_model.IntVar]


def pooled(snapshot: Snapshot, started: Mapping[int, int]) -> dict[int, int]:
    """The most GPUs by priority. `started`: those that did."""
    forms = Counter(_form(p.workload) for p in snapshot.pending)
    model = cp_model.CpModel()
    counts = {form: model.new_int_var(0, n, "") for form, n in forms.items()}
    for size in SIZES:
        slots = {s.node.name: (s.node.allocatable[GPU] - s.used.get(GPU, 0)) // size for s in snapshot.nodes}
        model.add(sum(form.slots(size) * n for form, n in counts.items()) <= sum(slots.values()))
        for level in KEYS:
            there: dict[str, int] = defaultdict(int)
            for state in snapshot.nodes:
                there[state.node.labels[level]] += slots[state.node.name]
            _thresholds(model, counts, size, level, there.values())
    _limits(model, counts, snapshot)
    return {p: _most(model, counts, p, started.get(p, 0)) for p in sorted(PRIORITIES, reverse=True)}


def _form(workload: Workload) -> Form:
    pods = tuple(sorted((p.count, p.requests[GPU]) for p in workload.pod_sets))
    return Form(workload.queue, workload.priority, workload.required, pods)


def _thresholds(
    model: cp_model.CpModel, counts: Counts, size: int, level: str, there: Collection[int]
) -> None:
    """Gangs that need many slots in one domain: as many times as the domains hold that many."""
    names = [key.rpartition("/")[2] for key in KEYS]
    inside = names[names.index(level.rpartition("/")[2]) :]
    narrow = [form for form in counts if form.level in inside]
    for least in sorted({form.slots(size) for form in narrow}):
        if least > 1:
            total = sum(form.slots(size) // least * counts[form] for form in narrow)
            model.add(total <= sum(n // least for n in there))


def _limits(model: cp_model.CpModel, counts: Counts, snapshot: Snapshot) -> None:
    for queue in snapshot.tree:
        limit = next((row.limit for row in queue.quota), None)
        if limit is not None:
            used = sum(a.workload.demand[GPU] for a in snapshot.admitted if a.workload.queue == queue.path)
            total = sum(form.slots(1) * n for form, n in counts.items() if form.queue == queue.path)
            model.add(total <= max(0, limit - used))


def _most(model: cp_model.CpModel, counts: Counts, priority: int, started: int) -> int:
    """The bound of one priority, which from then on has what it had."""
    total = sum(form.slots(1) * n for form, n in counts.items() if form.priority == priority)
    model.maximize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.linearization_level = 1, 2
    solver.parameters.max_deterministic_time = TIME
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), "what was started breaks the bound"
    model.add(total >= started)
    return floor(solver.best_objective_bound + 1e-6)

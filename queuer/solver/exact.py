"""`decide()` with the exact solver behind it: what the solver process runs. The parent calls the plain one."""

from __future__ import annotations

from queuer.solver.cpsat import CpSat
from queuer.solver.decide import decide as plain
from queuer.solver.problem import Budget, Plan, Snapshot


def decide(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """The plan; contested gangs go to CP-SAT."""
    return plain(snapshot, now=now, seed=seed, budget=budget, rearranger=CpSat())

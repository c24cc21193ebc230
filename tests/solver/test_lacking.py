"""Rows against victims that go for nothing cut off what `needed_by` refuses, and nothing that it accepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from queuer.solver.cpsat import lacking, solver
from queuer.solver.cpsat.checks import Going
from queuer.solver.cpsat.model import Model
from queuer.solver.cpsat.needed import Needless, needed_by
from queuer.solver.cpsat.proto import Status
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Eviction
from tests.solver.cases import NOW, seeded
from tests.solver.cases_rights import linked, twofold


def bears(model: Model, values: Sequence[int], gone: set[tuple[str, str, str]]) -> bool:
    """Whether all rows permit this solution. `gone`: who goes, for whom and by which rule."""
    fresh = Model(model.data, seed=0)
    assert fresh.lacking.add(model.data.victims())
    for variable in fresh.x.values():
        fresh.rows.row({variable: 1}, low=values[variable], high=values[variable])
    for item in model.data.items:
        for candidate in item.candidates:
            going = int((candidate.uid, item.workload.uid, candidate.rule.value) in gone)
            fresh.rows.row({fresh.evicted(candidate, item): 1}, low=going, high=going)
    status, _ = fresh.rows.solve(budget=5.0)
    assert status is not Status.UNKNOWN
    return status is not Status.NONE


def test_rows_cut_off_what_is_refused_and_nothing_that_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where gangs have several rights over the same work, and where queues keep back some of theirs."""
    monkeypatch.setattr(lacking, "CUT_OFF", 0)
    seen = Counter[tuple[bool, bool]]()

    def judged(
        model: Model, values: Sequence[int], evicted: Going, order: Sequence[Eviction]
    ) -> tuple[Eviction, ...] | Needless:
        monkeypatch.setattr(model.lacking, "add", lambda _: False)
        answer = needed_by(model, values, evicted, order)
        accepted = not isinstance(answer, Needless)
        going = answer if isinstance(answer, tuple) else order
        if going:
            gone = {(e.uid, e.beneficiary, e.rule.value) for e in going}
            seen[accepted, bears(model, values, gone)] += 1
        return answer

    monkeypatch.setattr(solver, "needed_by", judged)
    for seed in range(99_000_200, 99_000_240):
        for snapshot in (twofold(seed), linked(seed), seeded(seed)):
            decide(snapshot, now=NOW, seed=0, budget=Budget())
    assert set(seen) == {(True, True), (False, False)}
    assert min(seen.values()) > 50

"""A solver process that is late again and again is asked ever less often, until it answers in time."""

from __future__ import annotations

import pytest

from queuer.solver.child import Failure, Outcome
from queuer.solver.problem import Plan, SolveStatus
from queuer.solver.rest import MOST, Rest
from queuer.solver.worker import Source
from tests.solver.processes import GREEDY, SOLVED, ask, process


def asked(rest: Rest, questions: int) -> list[int]:
    """Which of so many questions do not go by without it, where all answers are late."""
    found = []
    for number in range(1, questions + 1):
        if not rest.goes_on():
            found.append(number)
            rest.was_late()
    return found


def test_the_distance_doubles_up_to_a_limit() -> None:
    assert asked(Rest(), 130) == [1, 2, 4, 8, 16, 32, 64, 96, 128]
    assert MOST == 31


def test_an_answer_in_time_ends_it() -> None:
    rest = Rest()
    asked(rest, 40)
    rest.in_time()
    assert asked(rest, 10) == [1, 2, 4, 8]


async def late(*_: object, **__: object) -> Plan:
    raise Failure(Outcome.LATE, "no plan within 5 s")


async def test_cycles_of_a_solver_that_rests_have_greedys_plan(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is there as soon as the stand-in has it; nothing is asked of the solver, which is neither killed nor renewed,
    and one line says that it rests.
    """
    async with process("sound") as solver:
        with monkeypatch.context() as patched:
            patched.setattr(solver.solver, "plan", late)
            fallbacks = [(await ask(solver)).stats.fallback for _ in range(2)]
            assert fallbacks == [Outcome.LATE, Outcome.LATE]
            told = [r.getMessage() for r in caplog.records if r.name == "queuer.solver.worker"]
            assert told == [
                "the solver process was late 2 times in a row; cycles that greedy decides alone: 1"
            ]
            plan = await ask(solver)
        assert (plan.stats.status, plan.stats.fallback) == (SolveStatus.FAILED, Outcome.RESTING)
        assert plan.stats.note == "resting: the last 2 answers were late"
        assert set(plan.stats.phases) == {"pack", "greedy", "verify", "hand-over"}
        assert solver.counts == {
            (Source.SOLVER, Outcome.LATE): 2,
            (Source.SOLVER, Outcome.RESTING): 1,
            GREEDY: 3,
        }
        assert (await ask(solver)).stats.fallback == ""
        assert solver.counts[SOLVED] == 1
        assert solver.restarts[Source.SOLVER] == 0

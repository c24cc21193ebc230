"""A solver process that fails again and again is asked ever less often, until it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import CapturingLogger

from queuer.solver import worker
from queuer.solver.child import Failure, Outcome
from queuer.solver.problem import Plan, SolveStatus
from queuer.solver.rest import LONGEST, Rest
from queuer.solver.worker import Source
from tests.solver.processes import GREEDY, SOLVED, ask, process


def asked(rest: Rest, questions: int) -> list[int]:
    """Which of so many questions do not go by without it, where all fail."""
    found = []
    for number in range(1, questions + 1):
        if not rest.goes_on():
            found.append(number)
            rest.failed()
    return found


def test_the_distance_doubles_up_to_a_limit() -> None:
    assert asked(Rest(), 130) == [1, 2, 4, 8, 16, 32, 64, 96, 128]
    assert LONGEST == 31


def test_an_answer_ends_it() -> None:
    rest = Rest()
    asked(rest, 40)
    rest.answered()
    assert asked(rest, 10) == [1, 2, 4, 8]


@pytest.mark.parametrize(
    "outcome", [Outcome.LATE, Outcome.CRASHED, Outcome.GARBAGE, Outcome.UNSOUND], ids=lambda outcome: outcome
)
async def test_cycles_of_a_solver_that_rests_have_greedys_plan(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there as soon as the stand-in has it; nothing is asked of the solver, which is neither killed nor renewed,
    and one line says that it rests.
    """
    lines = CapturingLogger()
    monkeypatch.setattr(worker, "log", lines)
    async with process("sound") as solver:
        with monkeypatch.context() as patched:
            patched.setattr(solver.solver, "plan", failing(outcome))
            fallbacks = [(await ask(solver)).stats.fallback for _ in range(2)]
            assert fallbacks == [outcome, outcome]
            (line,) = lines.calls
            assert line.args == ("the solver rests",)
            assert line.kwargs == {"failures": 2, "last": f"{outcome}: on purpose", "cycles": 1}
            plan = await ask(solver)
        assert (plan.stats.status, plan.stats.fallback) == (SolveStatus.FAILED, Outcome.RESTING)
        assert plan.stats.note == "resting: it failed 2 times in a row"
        assert set(plan.stats.phases) == {"pack", "greedy", "verify", "hand-over"}
        assert solver.counts == {
            (Source.SOLVER, outcome): 2,
            (Source.SOLVER, Outcome.RESTING): 1,
            GREEDY: 3,
        }
        assert (await ask(solver)).stats.fallback == ""
        assert solver.counts[SOLVED] == 1
        assert solver.restarts[Source.SOLVER] == 0


@pytest.mark.parametrize("outcome", [Outcome.NOT_READY, Outcome.NOT_ASKED], ids=lambda outcome: outcome)
async def test_a_solver_that_could_not_be_asked_does_not_rest(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process("sound") as solver:
        with monkeypatch.context() as patched:
            patched.setattr(solver.solver, "plan", failing(outcome))
            fallbacks = {(await ask(solver)).stats.fallback for _ in range(4)}
        assert fallbacks == {outcome}
        assert (await ask(solver)).stats.fallback == ""


def failing(outcome: Outcome) -> Callable[..., Awaitable[Plan]]:
    async def fail(*_: object, **__: object) -> Plan:
        raise Failure(outcome, "on purpose")

    return fail

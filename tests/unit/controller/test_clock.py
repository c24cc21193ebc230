"""The leader's clock goes on by what has passed, whatever somebody sets a machine's clock to."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from queuer.controller.clock import RATE, STEP, SteadyClock

START = 1_000_000.0
FIVE_MINUTES = 300.0


@dataclass
class Machine:
    """Seconds since the machine started, and how far the clock of PostgreSQL was put forward."""

    up: float = 0.0
    put: float = 0.0

    def clock(self) -> SteadyClock:
        return SteadyClock(START, steady=lambda: self.up)

    def tell(self, clock: SteadyClock) -> float:
        """What the clock says, told what PostgreSQL says."""
        clock.hear(START + self.up + self.put)
        return clock()


def test_it_is_what_it_was_told_whatever_the_machine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    clock = machine.clock()
    for machine.up in (1.0, 60.0, 60.0, 86_400.0):
        monkeypatch.setattr("time.time", lambda: START - FIVE_MINUTES)
        assert clock() == pytest.approx(START + machine.up)


@pytest.mark.parametrize("step", [FIVE_MINUTES, -FIVE_MINUTES])
def test_a_step_passes_no_deadline(step: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.put = step
    machine.up = 60.0
    assert machine.tell(clock) == pytest.approx(START + 60.0, abs=60.0 * RATE)


@pytest.mark.parametrize("step", [FIVE_MINUTES, -FIVE_MINUTES])
def test_it_makes_up_the_difference_and_never_goes_back(step: float) -> None:
    machine = Machine()
    clock, told = machine.clock(), [START]
    machine.put = step
    while machine.up < FIVE_MINUTES / RATE:
        machine.up += 10.0
        told.append(machine.tell(clock))
    assert told == sorted(told)
    assert told[-1] == pytest.approx(START + machine.up + step, abs=STEP)


def test_a_small_difference_is_the_way_of_the_answer() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.up, machine.put = 10.0, -STEP / 2
    assert machine.tell(clock) == START + 10.0

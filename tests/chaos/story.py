"""A story: gangs come, change and go while the controller dies at one failpoint after the other, a fault beside each.

A round arms the controller with one point and lets it get there. The fault happens, and the dead controller's
traces are checked. The next round's controller is its successor. After the last round one stays: all must
settle, and what can
end must end. The seed decides all that is chosen; what meets what in time is chance.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from queuer.controller.failpoints import Deed, Point
from queuer.local.cluster import Cluster
from tests.chaos.checker import Gangs, picture, said, settle, settled, sound
from tests.chaos.drift import METRIC
from tests.chaos.faults import DEEDS, Fault
from tests.chaos.ways import AGAIN, WAYS, endless, moves, short
from tests.chaos.world import Manifest, World, world
from tests.e2e.controller import Controller
from tests.e2e.support import wait_until

REACHED = 120.0
"""Seconds until a controller is at its point."""
QUIET = 180.0
"""Seconds until everything has settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One point and the fault beside it; `wrong`: what was found. The last one of a story has neither."""

    seed: int
    point: Point | None
    fault: Fault | None
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        what = f"{self.point or 'quiet':<14} {self.fault or '':<18}"
        return f"seed {self.seed:<5} {what} {self.seconds:5.1f} s  {'; '.join(self.wrong) or 'ok'}"


def deal(seed: int, points: Sequence[Point], faults: Sequence[Fault]) -> list[tuple[Point, Fault]]:
    """The points in an order of the seed, with all faults in turn."""
    random = Random(f"deal {seed}")
    order, turns = random.sample(points, len(points)), random.sample(faults, len(faults))
    return [(point, turns[number % len(turns)]) for number, point in enumerate(order)]


def play(
    cluster: Cluster,
    *,
    seed: int,
    points: Sequence[Point] = tuple(Point),
    faults: Sequence[Fault] = tuple(Fault),
) -> Iterator[Round]:
    """Play the story of a seed, a round for each point and one for the quiet afterwards."""
    with world(cluster) as place:
        story = Story(world=place, seed=seed, random=Random(seed))
        try:
            story.endless += endless(place)
            for point, fault in deal(seed, points, faults):
                yield story.round(point, fault)
            yield story.end()
        finally:
            for process in story.processes:
                process.stop()


@dataclass(slots=True, kw_only=True)
class Story:
    """What is played with one seed, round by round."""

    world: World
    seed: int
    random: Random
    gangs: Gangs = field(default_factory=Gangs)
    processes: list[Controller] = field(default_factory=list)
    endless: list[Manifest] = field(default_factory=list)

    def round(self, point: Point, fault: Fault) -> Round:
        """The controller dies at `point` while `fault` happens."""
        began, left, earlier = time.monotonic(), list[Manifest](), len(self.processes)
        deed = Deed.STOP if fault is Fault.FROZEN else Deed.KILL
        wrong = list[str]()
        try:
            left += moves(self.world, self.random, self.endless)
            left += WAYS[point](self.world, self.random)
            process = self._start(
                f"{point}={deed}@{self.random.choice((1, 1, 2)) if WAYS[point] is short else 1}"
            )
            if fault is Fault.FROZEN:
                self.reach(process, point, left)
                self._succeed(process)
            else:
                self._wait(process, self.random.uniform(0.5, 4.0))
                undo = DEEDS[fault](self.world, self.random)
                try:
                    self._wait(process, self.random.uniform(0.5, 2.0))
                finally:
                    undo()
                self.reach(process, point, left)
        except AssertionError as error:
            wrong.append(str(error))
        for process in self.processes[earlier:]:
            wrong += said(process)
            if process.running:
                process.thaw()
                process.kill()
        wrong += sound(self.world, picture(self.world), self.gangs)
        for job in left:
            self.world.delete(job)
        return self._told(point, fault, began, wrong)

    def end(self) -> Round:
        """One controller stays: all settles, then all that can end does, and nothing is held."""
        began, wrong = time.monotonic(), list[str]()
        process = self._start("")
        try:
            process.wait_leading(timeout=60)
            wrong += settle(self.world, timeout=QUIET)
            wrong += sound(self.world, picture(self.world), self.gangs)
            for job in self.endless:
                self.world.delete(job)
            wait_until(
                lambda: not self.world.live(),
                timeout=QUIET,
                describe=lambda: f"all end: {list(self.world.live().values())}; {settled(self.world)}",
            )
            wrong += settle(self.world, timeout=QUIET)
            # The auditor may have just mended the story's damage to the ledger: it is shown until the next
            # look.
            wait_until(
                lambda: not process.metric(METRIC), timeout=QUIET,
                describe=lambda: f"{METRIC} is 0, not {process.metric(METRIC)}",
            )  # fmt: skip
        except AssertionError as error:
            wrong.append(str(error))
        return self._told(None, None, began, [*wrong, *said(process)])

    # -- parts of a round

    def _start(self, failpoints: str) -> Controller:
        process = self.world.controller()
        self.processes.append(process)
        return process.start_without_waiting(QUEUER_FAILPOINTS=failpoints)

    def _wait(self, process: Controller, seconds: float) -> bool:
        """Whether it has died or stopped by then."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not process.running or process.frozen:
                return True
            time.sleep(0.05)
        return False

    def reach(self, process: Controller, point: Point, left: list[Manifest]) -> None:
        """Wait until it has died or stopped at its point, and give it more occasion to."""
        until = time.monotonic() + REACHED
        while not self._wait(process, AGAIN.get(point, 5.0)):
            assert time.monotonic() < until, f"{point} was not reached; its log ends:\n{process.log_tail(5)}"
            left += WAYS[point](self.world, self.random)
        ended = f"it ended before {point}; its log ends:\n{process.log_tail(5)}"
        assert process.log_has(f"failpoint {point}: "), ended

    def _succeed(self, frozen: Controller) -> None:
        """A second controller leads before the first one wakes; that one must find out."""
        second = self._start("").wait_leading(timeout=60)
        short(self.world, self.random)
        frozen.thaw()
        wait_until(lambda: not frozen.leads(), timeout=20, describe="the one that was frozen does not lead")
        assert second.leads(), "the second one leads on"

    def _told(self, point: Point | None, fault: Fault | None, began: float, wrong: Sequence[str]) -> Round:
        seconds = time.monotonic() - began
        return Round(seed=self.seed, point=point, fault=fault, seconds=seconds, wrong=tuple(wrong))

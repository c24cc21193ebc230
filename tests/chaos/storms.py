"""A storm: gangs come, change and go while the controller's watches fail it and the database stops; then all is quiet.

Nobody tells the controller what it missed. Once it is quiet, what it remembers must be what is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

import psycopg

from queuer.local.cluster import Cluster
from tests.chaos.checker import Gangs, misremembered, picture, said, settle, settled, sound
from tests.chaos.drift import METRIC, put_right
from tests.chaos.faults import node_lost, pod_terminating
from tests.chaos.streams import CALM, Streams, Weather, streams
from tests.chaos.ways import endless, moves, owner
from tests.chaos.world import TEAM_A, TEAM_B, Manifest, World, world
from tests.e2e.controller import Controller
from tests.e2e.support import wait_until

REMEMBERED = 120.0
"""Seconds within which what was missed must be found: two periods of the auditor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How hard it blows. Seconds: of load before and after the outages, of the database's outage, of the refusal of the
    token and of all rights, between two moves of the users, and until all must have settled. `settings`: of the
    controller.
    """

    load: float
    outage: float
    refusal: float
    pace: float
    quiet: float
    weather: Weather
    settings: Mapping[str, str]


FULL = Scale(
    load=90.0, outage=300.0, refusal=60.0, pace=2.0, quiet=300.0,
    weather=Weather(dropped=0.01, doubled=0.01, life=10.0),
    settings={"QUEUER_LANDING_DEADLINE": "60"},
)  # fmt: skip
"""The controller's own defaults."""
SHORT = Scale(
    load=2.0, outage=10.0, refusal=10.0, pace=2.0, quiet=180.0,
    weather=Weather(dropped=0.3, doubled=0.3, life=2.0),
    settings={"QUEUER_LANDING_DEADLINE": "20", "QUEUER_RELIST": "3"},
)  # fmt: skip
"""More goes wrong in less time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """The result. `settled`: seconds from the last fault until all was as it should be."""

    seed: int
    jobs: int
    counts: Mapping[str, int]
    settled: float
    notes: tuple[str, ...]
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        faults = ", ".join(f"{what} {number}" for what, number in sorted(self.counts.items()))
        told = f"storm {self.seed:<4} {self.jobs} jobs; {faults}; settled after {self.settled:.1f} s"
        return "; ".join([told, *self.notes, *(self.wrong or ["ok"])])


def blow(cluster: Cluster, *, seed: int, scale: Scale, drift: bool) -> Storm:
    """Play one storm. `drift`: whether the ledger is changed at its end, and must be repaired."""
    random = Random(f"storm {seed}")
    with world(cluster) as place, streams(cluster, Random(f"streams {seed}")) as proxy:
        kubeconfig = str(proxy.kubeconfig(place.postgres))
        process = place.controller(**{"KUBECONFIG": kubeconfig, **scale.settings})
        try:
            story = _Story(world=place, proxy=proxy, process=process, random=random, scale=scale)
            return story.play(seed, drift=drift)
        finally:
            process.stop()


@dataclass(slots=True, kw_only=True)
class _Story:
    world: World
    proxy: Streams
    process: Controller
    random: Random
    scale: Scale

    def play(self, seed: int, *, drift: bool) -> Storm:
        gangs, notes, wrong, took = Gangs(), list[str](), list[str](), 0.0
        runs = endless(self.world)
        try:
            self.process.start().wait_leading()
            wrong += settle(self.world, timeout=self.scale.quiet)
            wrong += sound(self.world, picture(self.world), gangs)
            self._rage(runs)
            took = self._calm(runs)
            wrong += settle(self.world, timeout=self.scale.quiet)
            wrong += sound(self.world, picture(self.world), gangs)
            if drift:
                edited, removed = (gang["metadata"]["uid"] for gang in (runs[0], runs[-1]))
                told = put_right(
                    self.process, self.world.database, edited=edited, removed=removed, queue=TEAM_A
                )
                notes.append(str(told))
            self._end(runs)
        except AssertionError as error:
            wrong.append(str(error))
        if not self.process.leads():
            wrong.append("the controller does not lead")
        if left := self.process.metric(METRIC):
            wrong.append(f"{METRIC} is {left}")
        return Storm(
            seed=seed, jobs=sum(self.world.numbers.values()), counts=self.proxy.counts, settled=took,
            notes=tuple(notes), wrong=(*wrong, *said(self.process)),
        )  # fmt: skip

    # -- parts of a storm

    def _rage(self, runs: list[Manifest]) -> None:
        """Load under faults; in the middle the database stops for a while, then the controller's token and its rights
        are refused, and the load goes on.
        """
        self._load(runs, self.scale.load)
        self.world.stop_database()
        try:
            self._load(runs, self.scale.outage)
        finally:
            self.world.start_database()
        for status in (401, 403):
            self._load(runs, self.scale.refusal, refused=status)
        self._load(runs, self.scale.load)

    def _load(self, runs: list[Manifest], seconds: float, *, refused: int | None = None) -> None:
        until, first, gone = time.monotonic() + seconds, True, list[Manifest]()
        while time.monotonic() < until:
            # In bursts: for the first move and some others each watch that is opened is refused.
            gone_share = 1.0 if first or self.random.random() < 0.2 else 0.0
            first = False
            self.proxy.weather = replace(self.scale.weather, gone=gone_share, refused=refused)
            undo = self._strike()
            for job in gone:
                self.world.delete(job)
            gone = []
            with suppress(psycopg.OperationalError):  # some moves look there, and it may be stopped
                gone = moves(self.world, self.random, runs)
            time.sleep(self.scale.pace)
            undo()
        for job in gone:
            self.world.delete(job)

    def _strike(self) -> Callable[[], None]:
        """Now and then something happens to the cluster."""
        match self.random.randrange(10):
            case 0:
                return node_lost(self.world, self.random)
            case 1:
                return pod_terminating(self.world, self.random)
            case 2:
                owner(self.world, self.random)
        return lambda: None

    def _calm(self, runs: list[Manifest]) -> float:
        """The faults end, what was missed is found, and all ends but what runs for ever; answers the seconds."""
        self.proxy.weather, began = CALM, time.monotonic()
        self._await({job["metadata"]["uid"] for job in runs})
        self._remember()
        return time.monotonic() - began

    def _await(self, live: set[str]) -> None:
        """Wait until only these wait or run, and all is settled."""
        wait_until(
            lambda: self.world.live().keys() <= live and not settled(self.world),
            timeout=self.scale.quiet, interval=0.3,
            describe=lambda: f"all is quiet: {len(self.world.live())} are live; {settled(self.world)}",
        )  # fmt: skip

    def _remember(self) -> None:
        """Wait until the controller decides on what is there; a gang for which there is no room has it decide."""
        witness = self.world.job("witness", queue=TEAM_B, pods=99, gpus=8)
        try:
            wait_until(
                lambda: not misremembered(self.world, asked=witness), timeout=REMEMBERED,
                describe=lambda: str(misremembered(self.world, asked=witness)),
            )  # fmt: skip
        finally:
            self.world.delete(witness)

    def _end(self, runs: list[Manifest]) -> None:
        """Endless jobs are deleted: nothing may be held, nor remembered."""
        for job in runs:
            self.world.delete(job)
        self._await(set())

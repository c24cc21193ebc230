"""Acts of users and administrators, repeated until the controller reaches each failpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from queuer.controller.failpoints import Point
from tests.chaos.checker import outcome
from tests.chaos.drift import NOBODY, charge_nobody
from tests.chaos.world import BESIDE, EXPRESS, REFUSED, TEAM_A, TEAM_B, Manifest, World


def endless(world: World) -> list[Manifest]:
    """Endless jobs: team-b on what it borrows, and some of team-a."""
    return [
        *(world.job("borrower", queue=TEAM_B, pods=2, gpus=8) for _ in range(4)),
        world.pytorchjob("borrower", queue=TEAM_B, workers=3, gpus=4),
        world.job("base", queue=TEAM_A, pods=2, gpus=8),
    ]


def moves(world: World, random: Random, endless: Sequence[Manifest]) -> list[Manifest]:
    """Acts of users: gangs come, are held, edited, suspended, deleted. Answers what must be cleaned up."""
    short(world, random)
    waiting = world.job("edited", queue=TEAM_A, pods=2, gpus=random.randint(1, 8), run_for="1s")
    world.patch(waiting, {"spec": {"parallelism": 1, "completions": 1}})
    match random.randrange(4):
        case 0:
            world.delete(world.job("deleted", queue=EXPRESS))
        case 1:
            held = world.job("held", queue=EXPRESS, annotations={"queuer.dev/hold": "true"}, run_for="1s")
            world.patch(held, {"metadata": {"annotations": {"queuer.dev/hold": None}}})
        case 2:
            suspended = random.choice(endless)
            if suspended["kind"] == "Job" and world.state(suspended) == "Running":
                world.excuse(suspended)
                world.patch(suspended, {"spec": {"suspend": True}})
        case _:
            return [world.job("deleted", queue=TEAM_B, pods=2, gpus=4)]
    return []


Way = Callable[[World, Random], list[Manifest]]
"""Does something; answers the jobs that the round has to clean up, since they would never end."""


def nothing(world: World, random: Random) -> list[Manifest]:
    """Each start of a controller passes there."""
    return []


def short(world: World, random: Random) -> list[Manifest]:
    """A gang for which there is room comes, runs and ends."""
    queue, run_for = random.choice((EXPRESS, TEAM_A)), f"{random.randint(1, 2)}s"
    if random.random() < 0.4:
        world.pytorchjob("train", queue=queue, workers=random.randint(1, 2), run_for=run_for)
    else:
        world.job("short", queue=queue, pods=random.randint(1, 3), run_for=run_for)
    return []


def owner(world: World, random: Random) -> list[Manifest]:
    """A gang comes that takes back what it is guaranteed, once those before it have ended.

    A line of owners would hand the room on from one to the next, and nobody would have to go.
    """
    live = (job["metadata"]["name"] for job in world.jobs() if outcome(job) is None)
    if not any(name.startswith("owner") for name in live):
        world.job("owner", queue=TEAM_A, pods=4, gpus=8, run_for="2s")
    return []


def refused(world: World, random: Random) -> list[Manifest]:
    """A gang that the API server does not let start."""
    return [world.job("refused", queue=EXPRESS, labels={REFUSED: "true"})]


def homeless(world: World, random: Random) -> list[Manifest]:
    """A gang whose pods no node takes: their volume is not there."""
    container = {"name": "main", "image": "x", "resources": {"limits": {"cpu": "1"}}}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    made = world.job("homeless", queue=EXPRESS, spec={"template": {"spec": pod}})
    world.excuse(made)
    return [made]


def wide(world: World, random: Random) -> list[Manifest]:
    """The owner of a running gang gives up some of its pods."""
    running = [
        job for job in world.every("Job")
        if job["metadata"]["name"].startswith("wide") and world.state(job) == "Running"
    ]  # fmt: skip
    for job in running:
        world.excuse(job)
        world.patch(job, {"spec": {"parallelism": 2}})
    return [] if running else [world.job("wide", queue=TEAM_B, pods=4, gpus=1)]


def forced(world: World, random: Random) -> list[Manifest]:
    """An administrator starts a job beside the queues."""
    force(world, queue=BESIDE, run_for="10s")
    return []


def force(world: World, *, queue: str, **wanted: Any) -> Manifest:
    """A job that waits in a queue is started by an administrator."""
    held = world.job("forced", queue=queue, annotations={"queuer.dev/hold": "true"}, **wanted)
    change = {
        "metadata": {"annotations": {"queuer.dev/break-glass": "incident"}},
        "spec": {"suspend": False},
    }
    world.patch(held, change, admin=True)
    return held


def drift(world: World, random: Random) -> list[Manifest]:
    """A row of the ledger that nobody holds; the auditor looks twice before it mends it."""
    if not world.database.rows("SELECT 1 FROM ledger WHERE uid = %s AND closed IS NULL", NOBODY):
        charge_nobody(world.database, BESIDE)
    return []


WAYS: dict[Point, Way] = {
    Point.LEADING: nothing,
    Point.INHERITED: nothing,
    Point.TAKEN_IN: short,
    Point.DECIDED: short,
    Point.COMMITTED: short,
    Point.ADMITTED: short,
    Point.BEFORE_RELEASE: short,
    Point.RELEASED: short,
    Point.SUSPENDED: owner,
    Point.REQUEUED: owner,
    Point.WITHDRAWING: refused,
    Point.WITHDRAWN: refused,
    Point.ROLLED_BACK: homeless,
    Point.RECHARGED: wide,
    Point.ADOPTED: forced,
    Point.REPAIRED: drift,
}
AGAIN = {Point.RECHARGED: 2.0, Point.REPAIRED: 20.0, Point.ROLLED_BACK: 15.0}
"""Seconds after which it is done once more; 5 for all others."""
assert WAYS.keys() == set(Point), "every point has its way"

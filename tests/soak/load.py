"""The load of users and cluster: short jobs in two namespaces, deletions, gangs that borrow and are evicted,
a node that goes and returns.

The seed decides all that is chosen; what meets what in time is chance. Never more than `Mix.alive` jobs are there at
once, so that the API server's work stays the same however many jobs there will be.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.chaos.faults import node_lost
from tests.chaos.world import BESIDE, EXPRESS, TEAM_A, TEAM_B, Manifest, World
from tests.e2e.support import job_manifest

TICK = 0.25
"""Seconds between two looks at what is there."""
AT_ONCE = 40
"""Jobs that one look adds at most: what was created last may not be in the database yet."""
STALLED = 180.0
"""Seconds without a job that ended after which something hangs."""
GONE_AFTER = 3
"""Seconds after its end at which a job is removed, with its pods."""
LIVING = """
    SELECT uid, name, namespace, state FROM workload
    WHERE state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """`alive`: jobs at once. One job in `deleted` is deleted, one in `gangs` has several pods; `gpu`: the share of the
    others that ask for one. `borrowers`: gangs that live on what others lend, at once.

    `burst`: jobs after which guaranteed and high-priority work comes; `node`: after which a node goes, for `node_back`
    seconds.
    """

    alive: int = 300
    deleted: int = 20
    gangs: int = 50
    burst: int = 500
    node: int = 1_000
    node_back: float = 5.0
    gpu: float = 0.25
    borrowers: int = 3


@dataclass(slots=True, kw_only=True)
class Load:
    """`done` counts what was done, by what it is; `deleted`: uids of jobs deleted while they waited, landed or ran."""

    world: World
    random: Random
    mix: Mix = field(default_factory=Mix)
    done: Counter[str] = field(default_factory=Counter)
    deleted: set[str] = field(default_factory=set)
    beside: Callable[[], None] = lambda: None
    _node_back: tuple[float, Callable[[], None]] | None = None
    _late: dict[str, int] = field(default_factory=dict)

    def run(self, jobs: int) -> None:
        """Until so many more jobs were created. `beside` is called at every look.

        Raises AssertionError where no job ends any more.
        """
        until, ended, since = self.done["created"] + jobs, -1, time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            while (left := until - self.done["created"]) > 0:
                began = time.monotonic()
                living = self.world.database.rows(LIVING)
                if self.done["created"] - len(living) > ended:
                    ended, since = self.done["created"] - len(living), began
                assert began - since < STALLED, f"no job has ended for {STALLED:.0f} s: {living[:5]}"
                room = min(self.mix.alive - len(living), AT_ONCE, left)
                list(pool.map(self.world.create, self._jobs(max(room, 0), living)))
                self._delete(living, pool)
                self._lose_node()
                self.beside()
                time.sleep(max(0.0, began + TICK - time.monotonic()))
        if self._node_back is not None:
            self._bring_back()

    def _jobs(self, count: int, living: list[dict[str, Any]]) -> Iterator[Manifest]:
        borrowing = sum(row["name"].startswith("borrower") for row in living)
        for _ in range(count):
            number = self.done["created"] = self.done["created"] + 1
            if number % self.mix.burst == 1:
                self._late = {"owner": 2, "urgent": 10}
            late = next((label for label, n in self._late.items() if n), None)
            if late is not None:
                self._late[late] -= 1
                yield self._one(late, number)
            elif borrowing < self.mix.borrowers:
                borrowing += 1
                yield self._one("borrower", number)
            elif number % self.mix.gangs == 0:
                yield self._one("gang", number)
            else:
                yield self._one("short", number)

    def _one(self, label: str, number: int) -> Manifest:
        """A job by what it is for; what is not said of it is left to the seed."""
        random = self.random
        self.done[label] += 1
        wanted: dict[str, Any] = {
            "queue": random.choice((TEAM_A, TEAM_B, EXPRESS, BESIDE)),
            "namespace": random.choice(self.world.namespaces),
            "gpus": int(random.random() < self.mix.gpu), "run_for": f"{random.randint(1, 3)}s",
        }  # fmt: skip
        match label:
            case "owner":  # takes back what it is guaranteed
                wanted |= {"queue": TEAM_A, "pods": 4, "gpus": 8}
            case "urgent":  # goes before others of its queue, who must leave
                wanted |= {"queue": TEAM_B, "gpus": 4, "labels": {"queuer.dev/priority-class": "queuer-high"}}
            case "borrower":
                wanted |= {"queue": TEAM_B, "pods": 2, "gpus": 8, "run_for": "10s"}
            case "gang":
                wanted |= {"pods": random.randint(2, 4)}
        spec = {"backoffLimit": 100, "ttlSecondsAfterFinished": GONE_AFTER}
        manifest = job_manifest(f"{label}-{number}", **wanted)
        manifest["spec"] |= spec
        return manifest

    def _delete(self, living: list[dict[str, Any]], pool: ThreadPoolExecutor) -> None:
        """Some of those that are there, whatever they do now."""
        there = [row for row in living if row["uid"] not in self.deleted]
        due = self.done["created"] // self.mix.deleted - len(self.deleted)
        chosen = self.random.sample(there, max(0, min(due, len(there))))
        self.deleted |= {row["uid"] for row in chosen}
        self.done.update(f"deleted, {row['state']}" for row in chosen)
        list(pool.map(self._delete_one, chosen))

    def _delete_one(self, row: dict[str, Any]) -> None:
        self.world.delete({"kind": "Job", "metadata": {"name": row["name"], "namespace": row["namespace"]}})

    def _lose_node(self) -> None:
        if self._node_back is not None:
            if time.monotonic() > self._node_back[0]:
                self._bring_back()
        elif self.done["created"] // self.mix.node > self.done["nodes lost"]:
            self.done["nodes lost"] += 1
            self._node_back = time.monotonic() + self.mix.node_back, node_lost(self.world, self.random)

    def _bring_back(self) -> None:
        assert self._node_back is not None
        self._node_back[1]()
        self._node_back = None


READS = {
    "newest": "/workloads",
    "waiting": "/workloads?state=Queued",
    "queue": f"/workloads?queue={TEAM_B}",
    "past of a queue": f"/workloads?queue={TEAM_A}&deleted=true&limit=1000",
    "past failures": "/workloads?state=Failed&deleted=true",
    "queues": "/queues",
    "tree": "/queue-tree",
}
"""What is read of the API all the time, by what it shows."""

"""What is looked at whenever nothing is left to do: is the ledger zero, and what do processes and tables hold?

All of it is read from outside, but for the census that each process makes of itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

from queuer.store import retention
from tests.chaos.drift import REPAIRS
from tests.chaos.world import EXPRESS, World
from tests.e2e.controller import GPU, Controller
from tests.e2e.support import wait_until
from tests.soak import census
from tests.soak.census import Census
from tests.soak.load import LIVING, READS, Load
from tests.waiting import PATIENCE

QUIET = 180.0
"""Seconds until all has ended and gone."""
MOST = 5
"""Jobs that are named where they did not succeed."""
MEMORY = ("live", "jobs", "elsewhere", "moving", "timed", "holds", "touched", "untold")
"""Of `ClusterState`: what is empty when there is no job."""
_LEFT = {
    "jobs that live": f"SELECT count(*) AS n FROM ({LIVING}) AS living",
    "open ledger rows": "SELECT count(*) AS n FROM ledger WHERE closed IS NULL",
    "open admissions": "SELECT count(*) AS n FROM admission WHERE ended_at IS NULL",
    "effects": "SELECT count(*) AS n FROM outbox WHERE done_at IS NULL",
    "bonds": "SELECT count(*) AS n FROM bond",
    "reservations": "SELECT count(*) AS n FROM reservation",
}
_ENDED = "SELECT uid, name, state FROM workload WHERE submitted >= to_timestamp(%s) AND state <> 'Succeeded'"
_MOST = f"""
    SELECT coalesce(max(held), 0) AS held FROM (
        SELECT sum(n) OVER (ORDER BY at, n) AS held FROM (
            SELECT opened AS at, (amounts->>'{GPU}')::bigint AS n FROM ledger
            WHERE queue = %s AND opened >= to_timestamp(%s)
            UNION ALL
            SELECT closed, -(amounts->>'{GPU}')::bigint FROM ledger
            WHERE queue = %s AND opened >= to_timestamp(%s)
        ) AS moves WHERE n <> 0
    ) AS course
"""
"""The most that a queue held since a moment at which it held nothing."""
REPAIRED = f"SELECT count(*) AS n FROM ({REPAIRS}) AS repair WHERE at >= to_timestamp(%s)"
"""How often the auditor put the ledger right since a moment."""
_EVICTED = """
    SELECT data->>'cause' AS cause, count(*) AS n FROM event
    WHERE data->>'to' = 'Evicting' AND at >= to_timestamp(%s) GROUP BY 1
"""
_TABLES = """
    SELECT relname AS name, n_tup_ins AS put, n_tup_del AS taken, pg_total_relation_size(relid) AS bytes
    FROM pg_stat_user_tables
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows now; rows put in and deleted since the server began; bytes with indexes."""

    rows: int
    put: int
    taken: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One quiet point. `rss`: MiB by process. `outdated`: rows that retention should have deleted, by rule.
    `reads`: milliseconds of the API's answers. `wrong`: violations.
    """

    jobs: int
    seconds: float
    quiet_after: float
    rss: dict[str, float]
    drift: float
    census: dict[str, Census]
    series: int
    tables: dict[str, Table]
    outdated: dict[str, int]
    reads: dict[str, float]
    wrong: list[str]


@dataclass(slots=True, kw_only=True)
class Observer:
    """Looks at the processes of one soak. `censuses`: the file of each."""

    world: World
    controller: Controller
    api: httpx2.Client
    api_pid: int
    censuses: Mapping[str, Path]
    started: float = field(default_factory=time.time)
    drift: float = 0.0
    _block: float = field(default_factory=time.time)

    def listen(self) -> None:
        """Remember the largest drift that the auditor shows; for now and then."""
        self.drift = max(self.drift, self.controller.metric("queuer_quota_drift"))

    def look(self, load: Load) -> Moment:
        """Wait until nothing is left to do, then look at everything."""
        began = time.time()
        wait_until(
            lambda: not self._left(), timeout=QUIET, interval=0.5, describe=lambda: f"quiet: {self._left()}"
        )
        quiet = time.time()
        self.listen()
        taken = self._censuses()
        moment = Moment(
            jobs=load.done["created"], seconds=round(began - self.started, 1), quiet_after=round(quiet - began, 1),
            rss=self._rss(), drift=self.drift, census=taken, series=self._series(), tables=self._tables(),
            outdated=self._outdated(), reads=dict(self._reads()), wrong=[*self._wrong(load, taken["controller"])],
        )  # fmt: skip
        self.drift, self._block = 0.0, time.time()
        return moment

    def evicted(self) -> dict[str, int]:
        """Evictions of the whole run by cause."""
        return {row["cause"]: row["n"] for row in self.world.database.rows(_EVICTED, self.started)}

    def _left(self) -> dict[str, int]:
        found = {what: int(self.world.database.rows(query)[0]["n"]) for what, query in _LEFT.items()}
        for kind in ("Job", "Pod"):
            for namespace in self.world.namespaces:
                path = f"{self.world.path(kind, namespace)}?limit=1"
                found[f"{kind} in {namespace}"] = len(self.world.admin.get(path).json()["items"])
        return {what: n for what, n in found.items() if n}

    def _wrong(self, load: Load, memory: Census) -> Iterator[str]:
        rows = self.world.database.rows(_ENDED, int(self._block) - 1)
        otherwise = [row for row in rows if row["uid"] not in load.deleted]
        for row in otherwise[:MOST]:
            yield f"{row['name']} ended as {row['state']}"
        if more := len(otherwise[MOST:]):
            yield f"so did {more} more"
        query = "SELECT count(*) AS n FROM workload WHERE submitted >= to_timestamp(%s)"
        known = self.world.database.rows(query, int(self.started) - 1)[0]["n"]
        if known != load.done["created"]:
            yield f"{load.done['created']} jobs were created, the database knows {known}"
        since = EXPRESS, self._block
        held = self.world.database.rows(_MOST, *since, *since)[0]["held"]
        if held > 16:
            yield f"{EXPRESS} held {held} of 16 GPUs"
        if repairs := self.world.database.rows(REPAIRED, self._block)[0]["n"]:
            yield f"the ledger was repaired {repairs} times"
        if self.drift:
            yield f"drift was {self.drift}"
        left = {name: memory.entries.get(f"ClusterState.{name}", 0) for name in MEMORY}
        if any(left.values()):
            yield f"memory holds { ({name: n for name, n in left.items() if n}) }"

    def _censuses(self) -> dict[str, Census]:
        """Of each process; of the controller once its memory is empty, or else as it stays."""
        taken = {name: self._census(name) for name in self.censuses}
        for _ in range(20):
            if not any(taken["controller"].entries.get(f"ClusterState.{name}") for name in MEMORY):
                break
            time.sleep(0.5)
            taken["controller"] = self._census("controller")
        return taken

    def _census(self, name: str) -> Census:
        path = self.censuses[name]
        before = census.read(path)
        os.kill(self._pids()[name], signal.SIGUSR1)

        def newer() -> Census | None:
            now = census.read(path)
            return now if now != before else None

        found = wait_until(newer, timeout=60, describe=f"the census of {name}")
        assert found is not None
        return found

    def _pids(self) -> dict[str, int]:
        return {"controller": self.controller.pid, "api": self.api_pid}

    def _rss(self) -> dict[str, float]:
        """Of the processes, and of the controller's children together: the solver."""
        pids = self._pids()
        found = {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}
        children = psutil.Process(pids["controller"]).children(recursive=True)
        found["solver"] = sum(child.memory_info().rss for child in children)
        return {name: round(rss / 2**20, 1) for name, rss in found.items()}

    def _series(self) -> int:
        """Time series that Prometheus would keep of the controller."""
        shown = httpx2.get(
            f"http://127.0.0.1:{self.controller.port}/metrics", timeout=PATIENCE, trust_env=False
        )
        return sum(not line.startswith("#") for line in shown.text.splitlines())

    def _tables(self) -> dict[str, Table]:
        found = {}
        for row in self.world.database.rows(_TABLES):
            [counted] = self.world.database.rows(f'SELECT count(*) AS n FROM "{row["name"]}"')
            found[row["name"]] = Table(
                rows=counted["n"], put=row["put"], taken=row["taken"], bytes=row["bytes"]
            )
        return found

    def _outdated(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for rule in retention.RULES:
            before = time.time() - rule.days * retention.DAY
            query = (
                f"SELECT count(*) AS n FROM {rule.table} WHERE {rule.age} < to_timestamp(%s) AND {rule.only}"
            )
            found[f"{rule.table} after {rule.days} days"] += int(
                self.world.database.rows(query, before)[0]["n"]
            )
        return dict(found)

    def _reads(self) -> Iterator[tuple[str, float]]:
        wanted = dict(READS)
        for newest in self.api.get("/workloads?deleted=true&limit=1").raise_for_status().json()["items"]:
            wanted["one job"] = f"/workloads/{newest['uid']}"  # none yet where no past was put in
        for name, path in wanted.items():
            began = time.perf_counter()
            self.api.get(path).raise_for_status()
            yield name, round(1000 * (time.perf_counter() - began), 1)


def growth(first: Moment, last: Moment) -> dict[str, Any]:
    """By table: rows at both ends, rows put in a thousand jobs, and bytes."""
    thousands = max(last.jobs - first.jobs, 1) / 1000
    return {
        name: {
            "rows": [first.tables[name].rows, now.rows],
            "put_per_1000_jobs": round((now.put - first.tables[name].put) / thousands, 1),
            "pruned": now.taken - first.tables[name].taken,
            "mib": round(now.bytes / 2**20, 1),
        }
        for name, now in sorted(last.tables.items())
    }

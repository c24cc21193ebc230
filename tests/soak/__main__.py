"""Runs short jobs through the real parts, over a long past, and looks again and again at what stays behind.

    python -m tests.soak --jobs 50000 --history 5000000 [--seed S] [--json]

A line for each quiet point on stderr; a summary at the end, with `--json` one document of everything. Exit 1 where
anything is not as it must be. `QUEUER_TEST_CLUSTER=DIR` uses a kept cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count, cycle
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from bench import arguments
from bench.history import ROWS, fill
from queuer.local.cluster import API_PART
from queuer.local.identities import ADMIN
from tests.chaos.checker import FAILURES
from tests.chaos.world import World, world
from tests.e2e.conftest import kubernetes
from tests.e2e.scene import HIGH
from tests.e2e.support import kubectl
from tests.soak.bounds import WARM_UP, broken, spread
from tests.soak.census import FILE
from tests.soak.load import READS, Load
from tests.soak.quiet import Moment, Observer, growth
from tests.waiting import PATIENCE

DAYS = 35
"""How far the past goes back: some of it outdated by the shorter rules of retention."""
MODULE = "tests.soak.census"
SAID = (*FAILURES, "failed, tried again", "the term of office ended")
"""What the controller's log must not say where nothing but nodes fails."""
LOOKS = 4
"""Looks of the load to one read of the API."""
SLOW = 500
"""Milliseconds after which the database writes a statement into its log."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Many short jobs, nothing left behind."
    )
    options.add_argument("--jobs", type=arguments.positive, default=50_000, help="default: %(default)s")
    options.add_argument(
        "--history", type=arguments.whole(0, 100_000_000), default=5_000_000,
        help="rows of the past in all tables together, about (default: %(default)s)",
    )  # fmt: skip
    options.add_argument(
        "--every", type=arguments.positive, default=5_000, help="jobs from one quiet point to the next"
    )
    options.add_argument(
        "--minutes", type=arguments.positive, default=180,
        help="no more jobs after a quiet point later than this (default: %(default)s)",
    )  # fmt: skip
    options.add_argument("--seed", type=arguments.seed, default=1)
    options.add_argument("--json", action="store_true", help="print all that was measured")
    return options


def main() -> int:
    """1 where anything is wrong."""
    options = parser().parse_args()
    with (
        TemporaryDirectory(prefix="queuer-soak-") as home,
        kubernetes(Path(home)) as cluster,
        world(cluster) as place,
    ):
        report = _soak(place, Path(home), options)
    sys.stdout.write(json.dumps(report, indent=None if options.json else 1) + "\n")
    return 1 if report["failures"] else 0


def _soak(place: World, home: Path, options: argparse.Namespace) -> dict[str, Any]:
    _prepare(place, options.history)
    load, moments, failures = Load(world=place, random=Random(options.seed)), list[Moment](), list[str]()
    with _observer(place, home) as observer:
        load.beside = _beside(observer)
        try:
            moments.append(_told(observer.look(load)))
            while (left := options.jobs - load.done["created"]) > 0:
                if moments[-1].seconds > 60 * options.minutes:
                    break
                load.run(min(options.every, left))
                moments.append(_told(observer.look(load)))
        except (AssertionError, httpx2.HTTPError) as error:
            failures.append(f"after {load.done['created']} jobs: {error}")
        evicted = observer.evicted()
        failures += [f"the log says {said}" for said in SAID if observer.controller.log_has(said)]
    return {
        "jobs": load.done["created"],
        "done": dict(sorted(load.done.items())),
        "evicted": evicted,
        **_figures(moments),
        "slow_statements": _slow(place),
        "failures": [*failures, *broken(moments)],
    } | ({"moments": [asdict(moment) for moment in moments]} if options.json else {})


def _prepare(place: World, rows: int) -> None:
    """The past, a class of high priority, and a log of what takes the database long."""
    if rows:
        fill(place.database.url, jobs=max(rows // ROWS, 20), days=DAYS)
    kubectl(place.cluster, "admin", "apply", "-f", "-", input=json.dumps(HIGH))
    for setting, value in (("log_min_duration_statement", str(SLOW)), ("log_line_prefix", "%a|")):
        place.database.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
    place.database.execute("SELECT pg_reload_conf()")


@contextmanager
def _observer(place: World, home: Path) -> Iterator[Observer]:
    """A controller that leads and an API server, both of which count what they keep when they are asked."""
    censuses = {name: home / f"{name}.json" for name in ("controller", "api")}
    settings = {"QUEUER_LANDING_DEADLINE": "60", "QUEUER_FORECAST": "60", FILE: str(censuses["controller"])}
    controller = place.controller(**settings)
    controller.module = MODULE
    cluster, name = place.cluster, f"api-{controller.name}"
    environment = {"QUEUER_DATABASE_URL": place.database.url, FILE: str(censuses["api"])}
    command = cluster.command(API_PART, environment=environment)
    python, flag, _, *rest = command.arguments
    url = f"http://127.0.0.1:{command.environment['QUEUER_PORT']}/api/v1"
    try:
        cluster.launch(replace(command, name=name, arguments=[python, flag, MODULE, *rest]))
        controller.start().wait_leading(timeout=60)
        pid = cluster.pid(name)
        assert pid is not None, "the API runs"
        headers = {"Authorization": f"Bearer {cluster.token(ADMIN)}"}
        with httpx2.Client(base_url=url, headers=headers, timeout=PATIENCE, trust_env=False) as client:
            yield Observer(world=place, controller=controller, api=client, api_pid=pid, censuses=censuses)
    finally:
        controller.stop()
        cluster.stop([name])


def _beside(observer: Observer) -> Callable[[], None]:
    """About once a second: read the API in turn, and now and then listen for drift."""
    turns = cycle((*READS.values(), None))
    looks = count(1)

    def beside() -> None:
        if next(looks) % LOOKS:
            return
        if (path := next(turns)) is None:
            observer.listen()
        else:
            observer.api.get(path).raise_for_status()

    return beside


def _told(moment: Moment) -> Moment:
    said = (
        f"{moment.jobs:>7} jobs {moment.seconds:8.1f} s  rss {moment.rss}  {'; '.join(moment.wrong) or 'ok'}"
    )
    sys.stderr.write(f"{said}\n")
    sys.stderr.flush()
    return moment


def _figures(moments: Sequence[Moment]) -> dict[str, Any]:
    """Of a soak that came to a quiet point at least."""
    if not moments:
        return {}
    first, last, warm = moments[0], moments[-1], moments[WARM_UP:] or moments[-1:]
    busy = last.seconds + last.quiet_after - first.seconds - first.quiet_after
    return {
        "seconds": round(busy, 1),
        "jobs_per_s": round(last.jobs / busy, 1) if busy else 0.0,
        "rss_mib": {name: [moment.rss[name] for moment in moments] for name in last.rss},
        "rss_spread": {name: round(spread([moment.rss[name] for moment in warm]), 3) for name in last.rss},
        "blocks": {name: [moment.census[name].blocks for moment in moments] for name in last.census},
        "drift": [moment.drift for moment in moments],
        "reads_ms": {name: [moment.reads.get(name) for moment in moments] for name in last.reads},
        "tables": growth(first, last),
        "rows": sum(table.rows for table in last.tables.values()),
        "rows_at_first": sum(table.rows for table in first.tables.values()),
        "outdated": last.outdated,
    }


def _slow(place: World) -> dict[str, int]:
    """Queuer's statements that took the database longer than `SLOW`, with their counts."""
    found = Counter[str]()
    for line in (place.postgres / "log").read_text(errors="replace").splitlines():
        who, _, said = line.partition("|")
        if who.startswith("queuer") and " ms  " in said:
            found[f"{who}: {' '.join(said.split(' ms  ', 1)[1].split())[:100]}"] += 1
    return dict(found)


if __name__ == "__main__":
    sys.exit(main())

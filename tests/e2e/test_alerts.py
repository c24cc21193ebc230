"""Alerts fire on the numbers of a real release that is broken on purpose, each fault scraped and played."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from queuer.local.controlplane import API_SERVER
from tests.alerts import STEP, Case, Scrape, play, series_of
from tests.e2e.controller import Controller, tree
from tests.e2e.scene import Scene
from tests.e2e.support import crash, kubectl, wait_until

BINDING = ("validatingadmissionpolicybindings", "queuer-guard", "--type=merge", "-p")
API: Mapping[str, str] = {'queuer_stream_clients{instance="api"}': "0x99"}
"""The API server of the release, which is well."""
UNWRITABLE = """
    CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'odd' USING ERRCODE = '23514'; END $$;
    CREATE TRIGGER odd BEFORE INSERT OR UPDATE ON workload FOR EACH ROW WHEN (NEW.name = 'odd') EXECUTE FUNCTION odd()
"""
HOMELESS: Mapping[str, Any] = {
    "template": {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"cpu": "1"}}}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}],
        }
    }
}
"""Pods that no node takes."""
HELD = 10
"""Looks of Prometheus for which each scrape is played."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """What was scraped of a controller while it was well, and the cases that were made of it."""

    controller: Controller
    calm: Scrape
    cases: list[Case] = field(default_factory=list)

    def scrape(self, wanted: Callable[[], bool], describe: str) -> Scrape:
        """`/metrics` once this holds."""
        wait_until(wanted, timeout=60, describe=lambda: f"{describe}:\n{self.controller.log_tail()}")
        return Scrape(at=time.time(), text=self.controller.scraped())

    def above(self, metric: str, amount: float) -> Scrape:
        """`/metrics` once a metric, summed over its labels, is above an amount."""
        return self.scrape(lambda: self.controller.metric(metric) > amount, f"{metric} is above {amount}")

    def expect(self, name: str, *firing: str, after: list[Scrape], held: int = HELD) -> None:
        """What fires at the end of a calm time and of these scrapes."""
        played = [*[self.calm] * HELD, *(scrape for scrape in after for _ in range(held))]
        series = {**series_of(played, instance="controller"), **API}
        self.cases.append(Case(name=name, series=series, at=(len(played) - 1) * STEP, firing=firing))


@contextmanager
def guard_that_warns(scene: Scene) -> Iterator[None]:
    """The binding of the guard lets everything through."""
    patch = partial(kubectl, scene.cluster, "admin", "patch", *BINDING)
    patch(json.dumps({"spec": {"validationActions": ["Warn"]}}))
    try:
        yield
    finally:
        patch(json.dumps({"spec": {"validationActions": ["Deny"]}}))


@pytest.mark.timeout(600)
def test_alerts_fire_on_the_numbers_of_a_release_that_is_broken(scene: Scene, tmp_path: Path) -> None:
    scene.database.apply(tree(scene.namespace))
    controller = scene.start(QUEUER_LANDING_DEADLINE="5")
    scene.job("fine", pods=1, gpus=1)
    scene.wait_state("fine", "Running")
    watch = Watch(controller=controller, calm=Scrape(at=time.time(), text=controller.scraped()))
    watch.expect("calm", after=[watch.calm] * 3)

    scene.job("homeless-0", spec=HOMELESS)
    once = watch.above("queuer_evictions_total", 0)
    for number in range(1, 7):  # each rests after its first start
        scene.job(f"homeless-{number}", spec=HOMELESS)
    often = watch.above("queuer_evictions_total", 5)
    watch.expect("gangs do not land", "QueuerLandingFails", after=[once, often])

    scene.database.execute(UNWRITABLE)
    scene.job("odd", pods=1, gpus=1)
    aside = watch.above("queuer_workloads_in_quarantine", 0)
    scene.database.execute("DROP FUNCTION odd() CASCADE")
    watch.expect("a workload cannot be written", "QueuerQuarantine", after=[aside], held=25)

    with guard_that_warns(scene):
        faults = watch.above("queuer_guard_faults", 0)
    watch.scrape(lambda: controller.metric("queuer_guard_faults") == 0, "the guard is there again")
    watch.expect("the guard is changed", "QueuerUnguarded", after=[faults])

    scene.exits.callback(scene.cluster.start, [API_SERVER])
    crash(scene.cluster, API_SERVER)
    away = watch.above("queuer_watch_stale_seconds", 0)
    scene.cluster.start([API_SERVER])
    watch.expect("the API server is away", "QueuerWatchStale", after=_lasting(away), held=1)

    with scene.database.shut():
        gone = [watch.above("queuer_leader_terms_ended_total", 0)]
        for _ in range(3):
            gone.append(watch.above("queuer_leader_terms_ended_total", _ended(gone[-1])))
    fires = ("QueuerDatabaseUnavailable", "QueuerNobodyDecides")
    watch.expect("the database is away", *fires, after=gone, held=3)

    controller.wait_leading()
    controller.kill()
    watch.expect("the controller is gone", "QueuerNobodyDecides", after=[Scrape(at=time.time(), text="")])
    play(watch.cases, tmp_path)


def _ended(scrape: Scrape) -> float:
    rows = [row for row in scrape.text.splitlines() if row.startswith("queuer_leader_terms_ended_total{")]
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows)


def _lasting(scrape: Scrape) -> list[Scrape]:
    """The scrape as it would go on for five minutes: watches that do not answer get older, and nothing else changes."""

    def later(row: str, seconds: float) -> str:
        name, _, value = row.rpartition(" ")
        old = name.startswith("queuer_watch_stale_seconds{") and float(value) > 0
        return f"{name} {float(value) + seconds}" if old else row

    rows = scrape.text.splitlines()
    return [
        Scrape(at=scrape.at, text="\n".join(later(row, at) for row in rows) + "\n")
        for at in range(0, 300, STEP)
    ]

"""The benchmark of waits: its workload is what `bench/instances.md` says, and its figures are counted right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.instances import GPU, PER_NODE, Form, Mix, workload_of
from bench.rolling import Figures, Rule, Timed, Told, compared, means, measured, run, stories
from queuer.sim.scenario import Story
from queuer.solver.records import Budget

NODES = 64


@pytest.mark.parametrize("mix", list(Mix))
def test_jobs_ask_for_the_load_and_fit(mix: Mix) -> None:
    """Their GPU time is `load` of the cluster's over the time in which they come, whatever the seed draws."""
    told = stories(nodes=NODES, load=0.9, jobs=2000, mix=mix, seed=3, told=Told.DECLARED)
    work = sum(s.workload.demand[GPU] * (s.runtime or 0) for s in told)
    came = told[-1].workload.submitted - told[0].workload.submitted
    assert work / (came * NODES * PER_NODE) == pytest.approx(0.9, rel=0.02)
    assert max(s.workload.demand[GPU] for s in told) <= NODES * PER_NODE // 2
    assert [s.workload.submitted for s in told] == sorted(s.workload.submitted for s in told)
    silent = stories(nodes=NODES, load=0.9, jobs=2000, mix=mix, seed=3, told=Told.LEARNED)
    assert [replace(s, workload=replace(s.workload, estimate=None)) for s in told] == list(silent)


def job(number: int, gpus: int, submitted: float, runtime: float) -> Story:
    """A job of single GPUs."""
    workload = workload_of(f"w{number}", "root.all", Form(gpus, 1), submitted=submitted, lasts=None)
    return Story(workload=workload, runtime=runtime)


def test_waits_and_use_are_counted_after_the_warm_up() -> None:
    """Ten jobs: the first is warm-up. Jobs of 64 GPUs are large, of 8 small; 9 are neither."""
    told = [job(0, 8, 0.0, 10.0), *(job(i, 8, 100.0, 50.0) for i in range(1, 8))]
    told += [job(8, 64, 100.0, 50.0), job(9, 9, 200.0, 50.0)]
    starts = {f"w{i}": 110.0 for i in range(1, 8)} | {"w0": 100.0, "w8": 150.0, "w9": 230.0}
    found = measured(told, starts, gpus=100)
    assert (found.small_wait, found.large_wait, found.large_p95, found.large_max) == (10.0, 50.0, 50.0, 50.0)
    assert found.wait == pytest.approx((7 * 10 + 50 + 30) / 9)
    assert found.gpu_wait == pytest.approx((56 * 10 + 64 * 50 + 9 * 30) / (56 + 64 + 9))
    assert found.utilisation == pytest.approx((8 * 10 + 56 * 50 + 64 * 50) / (100 * 100))


def test_ratios_are_of_sums_and_a_constant_ratio_has_no_error() -> None:
    """Utilisation is compared in points."""
    base = Figures(
        wait=10, gpu_wait=10, large_wait=10, large_p95=10, large_max=0, small_wait=1, utilisation=0.9
    )
    twice = replace(base, wait=20, gpu_wait=30, utilisation=0.8)
    better = [replace(f, wait=f.wait / 2, utilisation=f.utilisation + 0.01) for f in (base, twice)]
    table = compared({Rule.BEST_EFFORT: [base, twice], Rule.RESERVATIONS: better})
    assert table["wait"] == {"value": 0.5, "error": 0.0}
    assert table["utilisation"] == {"value": 1.0, "error": 0.0}
    assert table["large_max"] == {"value": None, "error": None}


def test_quantiles_of_seconds_are_by_nearest_rank() -> None:
    """As everywhere: of a hundred the p99 is not the largest."""
    found = Figures(wait=1, gpu_wait=1, large_wait=1, large_p95=1, large_max=1, small_wait=1, utilisation=1)
    table = means([found], Timed(seconds=[float(n) for n in range(100, 0, -1)]))
    assert (table["p50_s"], table["p99_s"]) == (50, 99)


def test_the_same_seed_gives_the_same_figures() -> None:
    """Nothing but the seed decides; reservations are made where they are asked for."""
    told = stories(nodes=16, load=1.5, jobs=60, mix=Mix.LARGE, seed=1, told=Told.DECLARED)
    budget = Budget(deterministic=0.0)
    found = {
        rule: [run(told, nodes=16, rule=rule, budget=budget, timed=Timed()) for _ in range(2)]
        for rule in Rule
    }
    assert all(first == second for first, second in found.values())
    assert found[Rule.BEST_EFFORT] != found[Rule.RESERVATIONS]

"""How good start ranges are: forecasts while jobs arrive, held against real starts: `python -m bench.starts --help`.

Jobs and cluster are those of `bench.rolling`: what users declare is off by a lognormal factor of sigma 0.7. One JSON
object: what gangs were told first and last, by the CPU seconds of a forecast beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict

from bench import arguments
from bench.instances import Mix
from bench.rolling import Rule, Told, scenario, stories
from queuer.sim.engine import Simulation
from queuer.sim.forecast import Watcher
from queuer.solver.records import Budget


def run(*, nodes: int, load: float, jobs: int, every: float, estimates: Told, seed: int) -> dict[str, object]:
    """One seed."""
    told = stories(nodes=nodes, load=load, jobs=jobs, mix=Mix.MIXED, seed=seed, told=estimates)
    greedy = Budget(deterministic=0.0)
    simulation = Simulation(scenario(told, nodes=nodes, rule=Rule.RESERVATIONS), budget=greedy)
    watcher = Watcher(every=every, seed=seed)
    spent = 0.0
    for now in simulation.advance(()):
        begin = time.process_time()
        watcher.look(simulation.snapshot, now=now)
        spent += time.process_time() - begin
        if len(simulation.admissions) == len(told):
            break
    found = asdict(watcher.result({uid: at for at, uid in simulation.admissions}))
    return {"seed": seed, "cpu_s": round(spent / max(1, found["forecasts"]), 3), **found}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.starts", description=__doc__)
    made.add_argument("--nodes", type=arguments.positive, default=64, help="nodes with 8 GPUs each")
    made.add_argument(
        "--load", type=arguments.above_zero, default=0.95, help="GPU time asked for over GPU time there is"
    )
    made.add_argument("--jobs", type=arguments.positive, default=1000, help="gangs that come in one run")
    made.add_argument(
        "--every", type=arguments.above_zero, default=21_600.0, help="virtual seconds between two forecasts"
    )
    made.add_argument("--estimates", type=arguments.word(Told), choices=list(Told), default=Told.DECLARED)
    made.add_argument("--seeds", type=arguments.positive, default=3, help="how many workloads, from seed 1")
    return made


def main() -> None:
    """Print the figures of each seed."""
    given = vars(parser().parse_args())
    seeds = given.pop("seeds")
    print(json.dumps([run(**given, seed=seed) for seed in range(1, seeds + 1)]))


if __name__ == "__main__":
    main()

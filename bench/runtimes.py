"""How well run times are known beforehand from what ended, on a trace: `python -m bench.runtimes --help`.

Every job is asked about when it comes; what has ended by then is known. One JSON object: `jobs`, `known` (part with an
estimate), and of these `under` (part that ran longer), `factor_p50` (times too long or too short), `within_2`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from heapq import heappop, heappush
from pathlib import Path

from bench import arguments
from queuer.domain.errors import InvalidInput
from queuer.domain.estimates import RUNS, Estimates
from queuer.domain.workload import PodSet, Workload
from queuer.sim.report import JobOutcome, Run, RunTimes
from queuer.sim.trace import TraceJob, read_jobs


def guesses(jobs: tuple[TraceJob, ...], estimates: Estimates) -> list[JobOutcome]:
    """Each job as if it had started when it came, with the estimate of that moment."""
    found, ends = list[JobOutcome](), list[tuple[float, int, Workload]]()
    for job in sorted(jobs, key=lambda job: (job.submitted, job.row)):
        while ends and ends[0][0] <= job.submitted:
            end, _, workload = heappop(ends)
            estimates.learn(workload, end - workload.submitted)
        workload = _workload(job)
        end = job.submitted + job.duration
        run = Run(start=job.submitted, end=end)
        estimate = estimates.of(workload)
        found.append(
            JobOutcome(
                queue=job.queue, gpus=job.gpus, submitted=job.submitted, runs=(run,), estimate=estimate
            )
        )
        heappush(ends, (end, job.row, workload))
    return found


def _workload(job: TraceJob) -> Workload:
    return Workload(
        uid=str(job.row),
        kind="Job",
        namespace="trace",
        name=job.name,
        queue=job.queue,
        pod_sets=(PodSet(name="main", count=job.pods, requests={"gpu": job.gpus}),),
        submitted=job.submitted,
        user=job.user,
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.runtimes", description=__doc__)
    made.add_argument("--jobs", type=Path, required=True, help="a trace as `queuer sim replay` reads it")
    made.add_argument("--gpus-per-node", type=arguments.positive, default=8)
    made.add_argument("--runs", type=arguments.positive, default=RUNS, help="last runs that count")
    made.add_argument(
        "--quantile", type=arguments.below_one, default=0.5, help="which of them is the estimate"
    )
    return made


def main() -> None:
    """Print the figures."""
    given = parser().parse_args()
    try:
        jobs = read_jobs(given.jobs, gpus_per_node=given.gpus_per_node)
    except InvalidInput as error:
        parser().error(f"argument --jobs: {error}")
    outcomes = guesses(jobs, Estimates(runs=given.runs, quantile=given.quantile))
    table = {name: round(value, 3) for name, value in asdict(RunTimes.of(outcomes)).items()}
    print(json.dumps({"jobs": len(outcomes)} | table))


if __name__ == "__main__":
    main()

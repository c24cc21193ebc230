"""Replaying a trace: its jobs as a story on a cluster of equal nodes, judged by how long they waited.

The same engine and the same `decide()` as for scenario files. Policies differ in the words of queues and
jobs, never in the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from queuer.domain.fields import Problems, nearest
from queuer.domain.nodes import HOSTNAME, Flavor, Node, Topology
from queuer.domain.queue import ROOT
from queuer.domain.workload import GRACE, PodSet, Workload
from queuer.sim.engine import Record, Simulation, SimulationFault
from queuer.sim.forecast import Watcher
from queuer.sim.jobs import Stage, run_end
from queuer.sim.policy import ReplayPolicy
from queuer.sim.report import JobOutcome, Report, Run, report
from queuer.sim.scenario import Scenario, Story
from queuer.sim.trace import OTHER, TraceJob, TraceQueue, field_of, path_of, read_jobs, read_queues, settle
from queuer.solver.records import Budget

GPU = "gpu"
OWNER = "owner"
"""Node label: whose own nodes these are, where nobody borrows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The replayed trace and its cluster.

    `jobs_file`, `queues_file`: for errors. `queues`: None = one queue for all, named `single`. `borrowing=False`:
    each queue alone on nodes of its own. `window`: from and to, seconds, None = first or last submission.
    """

    jobs: tuple[TraceJob, ...]
    jobs_file: Path
    nodes: int
    gpus_per_node: int
    policy: ReplayPolicy
    queues: tuple[TraceQueue, ...] | None = None
    queues_file: Path = Path("queues.csv")
    single: str = "all"
    borrowing: bool = True
    window: tuple[float | None, float | None] = (None, None)


def prepare(
    jobs_file: Path,
    *,
    nodes: int,
    gpus_per_node: int,
    policy: ReplayPolicy,
    queues_file: Path | None = None,
    only: Sequence[str] = (),
    window: tuple[float | None, float | None] = (None, None),
    borrowing: bool = True,
) -> Setup:
    """The content of the files. `only`: queues of the trace to replay, all if empty.

    Raises InvalidInput naming file, row and column of what is wrong with them.
    """
    jobs = read_jobs(jobs_file, gpus_per_node=gpus_per_node, queues=only, start=window[0], end=window[1])
    queues = None if queues_file is None else read_queues(queues_file)
    if queues is not None and only:
        queues = tuple(q for q in queues if q.name in only)
    return Setup(
        jobs=jobs,
        jobs_file=jobs_file,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        policy=policy,
        queues=queues,
        queues_file=queues_file or Path("queues.csv"),
        single=only[0] if len(only) == 1 else "all",
        borrowing=borrowing,
        window=window,
    )


def replay(
    setup: Setup,
    *,
    clock: Callable[[], float],
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    record: Record | None = None,
    estimates: float = 0.0,
) -> Report:
    """Run the trace to the end of its last job. `clock`: wall seconds; `progress`: told the virtual time; `record`:
    gets every cycle; `estimates`: virtual seconds between two forecasts of starts, 0 = none.

    Raises InvalidInput naming the rows that can never start; SimulationFault where a job never did.
    """
    budget = Budget() if setup.policy is ReplayPolicy.QUEUER else Budget(deterministic=0.0)
    simulation = Simulation(scenario_of(setup), seed=seed, budget=budget, record=record)
    watcher = Watcher(every=estimates, seed=seed) if estimates else None
    began = clock()
    for time in simulation.advance(()):
        if watcher is not None:
            watcher.look(simulation.snapshot, now=time)
        if progress is not None:
            progress(time)
    took = clock() - began
    left = [uid for uid in simulation.jobs if simulation.stage(uid) is not Stage.ENDED]
    if left:
        raise SimulationFault(f"{len(left)} jobs never ended, the first of them {left[0]}")
    return report(
        _outcomes(setup, simulation),
        capacity=setup.nodes * setup.gpus_per_node,
        window=setup.window,
        decisions=simulation.cycles,
        took=took,
        estimates=None if watcher is None else watcher.result(_starts(simulation)),
    )


def _starts(simulation: Simulation) -> dict[str, float]:
    return {uid: job.started for uid, job in simulation.jobs.items() if job.started is not None}


def scenario_of(setup: Setup) -> Scenario:
    """The trace as a story. Raises InvalidInput where it cannot be one."""
    problems = Problems()
    flavors, nodes = _cluster(setup, problems)
    queues = _queues(setup)
    if setup.queues is None and not setup.borrowing and len({job.queue for job in setup.jobs}) > 1:
        hint = "give --queues, or one --queue"
        problems.note("--no-borrowing", "several queues need to be told which nodes are theirs", hint)
    settle(problems)
    _check_jobs(setup, problems)
    settle(problems)
    return Scenario(
        name=setup.jobs_file.name,
        why="replay of a trace",
        grace=GRACE,
        until=inf,
        topology=Topology(),
        flavors=flavors,
        nodes=nodes,
        foreign=(),
        queues=queues,
        stories=tuple(_story(setup, job) for job in setup.jobs),
        events=(),
        expect=(),
    )


def _path(setup: Setup, job: TraceJob) -> str:
    return path_of(setup.single if setup.queues is None else job.queue)


def _apart(setup: Setup) -> bool:
    """Whether each queue has nodes of its own."""
    return setup.queues is not None and not setup.borrowing


def _cluster(setup: Setup, problems: Problems) -> tuple[tuple[Flavor, ...], tuple[Node, ...]]:
    """Equal nodes; where nobody borrows, a flavor of them for each queue."""
    owners = [""] * setup.nodes
    flavors: tuple[Flavor, ...] = ()
    if setup.queues is not None and not setup.borrowing:
        owners = [path_of(q.name) for q in setup.queues for _ in range(q.nodes)]
        flavors = tuple(
            Flavor(name=path_of(q.name), node_labels={OWNER: path_of(q.name)})
            for q in setup.queues
            if q.nodes
        )
        if len(owners) != setup.nodes:
            parts = " + ".join(f"{q.name} {q.nodes}" for q in setup.queues)
            problems.note(
                "--nodes",
                f"{setup.nodes}, but without borrowing the queues' own nodes are {len(owners)} ({parts})",
                f"give --nodes {len(owners)}",
            )
    for queue in setup.queues or ():
        if queue.nodes > setup.nodes and not _apart(setup):
            problems.note(
                field_of(setup.queues_file, queue.row, "nodes"),
                f"{queue.nodes} are guaranteed, but there are {setup.nodes}",
                f"give --nodes {queue.nodes} or more",
            )
        if queue.gpus_per_node != setup.gpus_per_node:
            problems.note(
                field_of(setup.queues_file, queue.row, "gpus_per_node"),
                f"{queue.gpus_per_node}, but the nodes have {setup.gpus_per_node}",
                f"give --gpus-per-node {queue.gpus_per_node}",
            )
    nodes = tuple(
        Node(
            name=f"n{i:05}",
            labels={HOSTNAME: f"n{i:05}", **({OWNER: owner} if owner else {})},
            allocatable={GPU: setup.gpus_per_node},
        )
        for i, owner in enumerate(owners)
    )
    return flavors, nodes


def _queues(setup: Setup) -> dict[str, dict[str, Any]]:
    """Bodies by path, as in a QueueTree document."""
    root: dict[str, Any] = {
        "policy": {"order": "strict", "preempt": "never", "reservations": 0} if setup.policy.strict else {}
    }
    bodies = {ROOT: root, **{_path(setup, job): {} for job in setup.jobs}}
    for queue in setup.queues or ():
        path, gpus = path_of(queue.name), queue.nodes * setup.gpus_per_node
        row: dict[str, Any] = {"resource": GPU, "guaranteed": gpus}
        if _apart(setup):
            row |= {"limit": gpus, **({"flavor": path} if gpus else {})}
        bodies[path] = {"quota": [row]}
    return bodies


def _check_jobs(setup: Setup, problems: Problems) -> None:
    """Every job must be able to start on the empty cluster, in a queue that takes jobs."""
    own = {q.name: q.nodes for q in setup.queues or ()}
    paths = [path_of(q.name) for q in setup.queues or ()]
    inner = {path for path in paths if any(other.startswith(f"{path}.") for other in paths)}
    for job in setup.jobs:
        there = own.get(job.queue, 0) if _apart(setup) else setup.nodes
        per_node = setup.gpus_per_node // job.gpus
        if job.queue not in own and setup.queues is not None and job.queue != OTHER:
            at = field_of(setup.jobs_file, job.row, "queue")
            hint = nearest(job.queue, own)
            problems.note(at, f"{job.queue!r} is no queue of {setup.queues_file.name}", hint)
        elif per_node == 0:
            at = field_of(setup.jobs_file, job.row, "gpus_per_pod")
            problems.note(at, f"a pod of {job.gpus} GPUs fits no node of {setup.gpus_per_node}")
        elif job.pods > per_node * there:
            at = field_of(setup.jobs_file, job.row, "pods")
            whose = f"of queue {job.queue}" if _apart(setup) else "of the cluster"
            problems.note(
                at,
                f"a gang of {job.pods} x {job.gpus} GPUs does not fit the {there} x {setup.gpus_per_node} {whose}",
                "give more --nodes, or leave the row out",
            )
        if _path(setup, job) in inner:
            at = field_of(setup.jobs_file, job.row, "queue")
            problems.note(at, f"{job.queue!r} has queues below it and takes no jobs itself")


def _story(setup: Setup, job: TraceJob) -> Story:
    workload = Workload(
        uid=_uid(job),
        kind="Job",
        namespace="trace",
        name=job.name,
        queue=_path(setup, job),
        pod_sets=(PodSet(name="main", count=job.pods, requests={GPU: job.gpus}),),
        submitted=job.submitted,
        priority=-round(job.duration) if setup.policy is ReplayPolicy.SJF else 0,
        user=job.user,
        max_runtime=job.walltime,
    )
    return Story(workload=workload, runtime=job.duration)


def _outcomes(setup: Setup, simulation: Simulation) -> list[JobOutcome]:
    starts: dict[str, list[float]] = {}
    for time, uid in simulation.admissions:
        starts.setdefault(uid, []).append(time)
    found = []
    for row in setup.jobs:
        job = simulation.jobs[_uid(row)]
        ends = [*(gone + GRACE for gone in job.evictions), run_end(job.began, row.duration)]
        runs = tuple(Run(start=s, end=e) for s, e in zip(starts[_uid(row)], ends, strict=True))
        found.append(
            JobOutcome(
                queue=row.queue,
                gpus=row.pods * row.gpus,
                submitted=row.submitted,
                runs=runs,
                estimate=job.guess,
            )
        )
    return found


def _uid(job: TraceJob) -> str:
    """By the row of the file, so that equal submit times keep its order."""
    return f"{job.row:09}"

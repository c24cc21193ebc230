"""GPUs that are in use once a production list of pods has filled its cluster: `python -m bench.openb --help`.

Pods of whole GPUs come one at a time, each to `decide()` with nothing else waiting; one that does not fit is dropped
and nothing ends, until 130 % of the GPUs were asked for. One JSON object: percent of the GPUs in use at the end, mean
over the orders: `ours best_fit fgd`; `worst`: ours less BestFit in the worst order; all of them under `orders`; `ms`:
CPU time of a decision.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from bench import arguments
from bench.packing_rules import Amounts, Rule, best_fit, descent
from queuer.domain.nodes import HOSTNAME, Node, Requirement, SchedulingTerms
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.workload import PodSet, Workload
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Budget, NodeState, Pending, Snapshot

DATA = Path(__file__).parent / "data"
GPU, MODEL = "nvidia.com/gpu", "gpu-model"
ASKED = 8_076
"""GPUs asked for in all: 130 % of the 6,212 that there are."""
TREE = QueueTree.of([Queue(path="root"), Queue(path="root.openb")])


class List(StrEnum):
    """The published lists: as traced; with more pods that name models; with more pods of several GPUs."""

    DEFAULT = "default"
    GPUSPEC33 = "gpuspec33"
    MULTIGPU50 = "multigpu50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One row of a list. `models`: those it accepts, () = any."""

    gpus: int
    millicores: int
    memory: int
    models: tuple[str, ...]

    @property
    def amounts(self) -> Amounts:
        """GPUs, millicores, bytes."""
        return np.array([self.gpus, self.millicores, self.memory], dtype=np.int64)


@dataclass(slots=True)
class Cluster:
    """The nodes of the trace, and what is free on them (N x 3)."""

    names: Sequence[str]
    models: NDArray[np.str_]
    there: Amounts
    free: Amounts = field(init=False)

    def __post_init__(self) -> None:
        self.free = self.there.copy()

    def accepts(self, models: tuple[str, ...]) -> NDArray[np.bool_]:
        """Nodes of these models (N)."""
        return np.isin(self.models, models) if models else np.ones(len(self.names), dtype=bool)

    @property
    def in_use(self) -> float:
        """Percent of the GPUs."""
        total = int(self.there[:, 0].sum())
        return 100.0 * (total - int(self.free[:, 0].sum())) / total


def cluster() -> Cluster:
    """The empty nodes, in the order of the trace."""
    rows = _rows("openb_nodes.csv")
    amounts = [[int(r["gpus"]), int(r["cpus"]) * 1000, int(r["mem_gib"]) * 2**30] for r in rows]
    return Cluster(
        [r["node"] for r in rows], np.array([r["gpu_model"] for r in rows]), np.array(amounts, dtype=np.int64)
    )


@cache
def pods(name: List) -> tuple[Pod, ...]:
    """The pods of a list that ask for whole GPUs."""
    return tuple(
        Pod(
            gpus=int(row["gpus_per_pod"]),
            millicores=round(float(row["cpus_per_pod"]) * 1000),
            memory=round(float(row["mem_gib_per_pod"]) * 2**30),
            models=tuple(sorted({*row["gpu_model"].split("|")} - {""})),
        )
        for row in _rows(f"openb_{name}_pods.csv")
    )


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def arrivals(name: List, *, gpus: int, seed: int) -> Iterator[Pod]:
    """The list in random order, then pods drawn from it with replacement, until more than `gpus` were asked for."""
    rng = Random(seed)
    order = list(pods(name))
    rng.shuffle(order)
    asked = 0
    for pod in chain(order, (rng.choice(order) for _ in repeat(None))):
        asked += pod.gpus
        yield pod
        if asked >= gpus:
            return


def filled_by_rule(name: List, rule: Rule, *, gpus: int = ASKED, seed: int) -> float:
    """Percent of the GPUs in use where `rule` chooses the nodes, the first of equal ones."""
    state = cluster()
    for pod in arrivals(name, gpus=gpus, seed=seed):
        fitting = np.flatnonzero((state.free >= pod.amounts).all(axis=1) & state.accepts(pod.models))
        if len(fitting):
            state.free[fitting[np.argmin(rule(state.free, fitting, pod.amounts))]] -= pod.amounts
    return state.in_use


def fgd(name: List) -> Rule:
    """FGD for the shapes of this list."""
    known = sorted({pod.models for pod in pods(name)})
    return descent(
        [(pod.gpus, pod.millicores, known.index(pod.models)) for pod in pods(name)],
        lambda number: cluster().accepts(known[number]),
    )


def filled(name: List, *, gpus: int = ASKED, seed: int) -> tuple[float, float]:
    """Percent of the GPUs in use where `decide()` chooses the nodes, and milliseconds of a decision."""
    state = cluster()
    nodes = [_node(state, i) for i in range(len(state.names))]
    number = {name: i for i, name in enumerate(state.names)}
    arrays: Arrays | None = None
    seconds, decisions = 0.0, 0
    for pod in arrivals(name, gpus=gpus, seed=seed):
        snapshot = Snapshot(nodes=tuple(nodes), tree=TREE, pending=(_pending(pod, decisions),))
        begin = time.process_time()
        arrays = Arrays.of(snapshot) if arrays is None else arrays.follow(snapshot)
        plan = decide(
            snapshot, now=float(decisions), seed=seed, budget=Budget(deterministic=0.0), arrays=arrays
        )
        seconds += time.process_time() - begin
        decisions += 1
        for admission in plan.admissions:
            for at in (number[host] for row in admission.assignments for host in row.nodes):
                state.free[at] -= pod.amounts
                nodes[at] = replace(nodes[at], used=_used(nodes[at].used, pod))
    return state.in_use, 1000 * seconds / decisions


def _node(state: Cluster, at: int) -> NodeState:
    name = state.names[at]
    gpus, millicores, memory = state.there[at].tolist()
    return NodeState(
        node=Node(
            name=name,
            labels={HOSTNAME: name, MODEL: str(state.models[at])},
            allocatable={GPU: gpus, "cpu": millicores, "memory": memory, "pods": 110},
        )
    )


def _requests(pod: Pod) -> dict[str, int]:
    return {GPU: pod.gpus, "cpu": pod.millicores, "memory": pod.memory, "pods": 1}


def _used(used: Mapping[str, int], pod: Pod) -> dict[str, int]:
    return {resource: used.get(resource, 0) + amount for resource, amount in _requests(pod).items()}


@cache
def _terms(models: tuple[str, ...]) -> SchedulingTerms:
    named = ((Requirement(key=MODEL, operator="In", values=models),),)
    return SchedulingTerms(affinity=named if models else None)


def _pending(pod: Pod, number: int) -> Pending:
    uid = f"p{number:05}"
    sets = PodSet(name="main", count=1, requests=_requests(pod), terms=_terms(pod.models))
    return Pending(
        workload=Workload(
            uid=uid,
            kind="Job",
            namespace="bench",
            name=uid,
            queue="root.openb",
            pod_sets=(sets,),
            submitted=float(number),
        )
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.openb", description=__doc__)
    made.add_argument(
        "--list", type=arguments.word(List), choices=list(List), default=List.DEFAULT, dest="name"
    )
    made.add_argument(
        "--orders", type=arguments.positive, default=10, help="random orders, with seeds 1 to this number"
    )
    made.add_argument("--json", action="store_true", help="the figures alone, without a line per order")
    return made


def main() -> None:
    """Print the figures; exit 1 where fewer GPUs are in use than with BestFit, on average."""
    given = parser().parse_args()
    orders: list[dict[str, float]] = []
    spent = []
    for seed in range(1, given.orders + 1):
        ours, ms = filled(given.name, seed=seed)
        spent.append(ms)
        orders.append(
            {
                "ours": round(ours, 3),
                "best_fit": round(filled_by_rule(given.name, best_fit, seed=seed), 3),
                "fgd": round(filled_by_rule(given.name, fgd(given.name), seed=seed), 3),
            }
        )
        if not given.json:
            print(f"order {seed}: {orders[-1]}, {ms:.2f} ms a decision", file=sys.stderr)
    means = {key: round(statistics.fmean(o[key] for o in orders), 3) for key in orders[0]}
    figures = {
        "list": given.name,
        **means,
        "worst": round(min(o["ours"] - o["best_fit"] for o in orders), 3),
        "ms": round(statistics.fmean(spent), 3),
        "orders": orders,
    }
    print(json.dumps(figures))
    sys.exit(1 if means["ours"] < means["best_fit"] else 0)


if __name__ == "__main__":
    main()

"""How soon a gang is refused for which nobody could make room: `python -m bench.infeasible --help`.

500 nodes full of one-GPU jobs, and a gang of ten pods of 8 GPUs that may reclaim. `sums`: 79 of these jobs may be
evicted. `guarantee`: all may, but their queue is 79 above its guarantee. `slots`: 429 may, but only nine nodes can be
emptied. One JSON object: CPU seconds of each decision from arrays to a verified plan with reasons, and whether the gang
was `refused` for what it lacks, with nobody evicted.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

from bench.instances import GPU, KEYS, NOW, PER_NODE, Form, node_at, workload_of
from queuer.domain.nodes import Topology
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.reasons import Token
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Admitted, Budget, Pending, Snapshot
from queuer.solver.verify import verify

NODES = 500
NINE = dict.fromkeys(range(9), PER_NODE)
EVERYWHERE = dict.fromkeys(range(NODES), PER_NODE)
CASES: Mapping[str, tuple[Mapping[int, int], int]] = {
    "sums": ({**NINE, 9: PER_NODE - 1}, 0),
    "guarantee": (EVERYWHERE, NODES * PER_NODE - 79),
    "slots": ({**NINE, **dict.fromkeys(range(9, 60), PER_NODE - 1)}, 0),
}
"""How many jobs of each node may be evicted, and what their queue is guaranteed."""


def full(loose: Mapping[int, int], *, guaranteed: int) -> Snapshot:
    """A cluster without a free GPU. `loose`: how many jobs of each node may be evicted."""
    admitted = []
    for n in range(NODES):
        node = node_at(n, used=PER_NODE)
        for i in range(PER_NODE):
            job = workload_of(f"j{n}-{i}", "root.b", Form(1, 1), submitted=NOW - 9_000, lasts=None)
            admitted.append(
                Admitted(
                    workload=replace(job, preemptible=i < loose.get(n, 0)),
                    counts={"main": 1},
                    flavors={"main": "default"},
                    since=NOW - 100 - n - i,
                    bound={node.node.name: dict(job.pod_sets[0].requests)},
                )
            )
    asked = workload_of("gang", "root.a", Form(10, PER_NODE), submitted=NOW - 60, lasts=None)
    queues = [
        Queue(path="root"),
        Queue(path="root.a", quota=(QuotaRow(resource=GPU, guaranteed=80),)),
        Queue(path="root.b", quota=(QuotaRow(resource=GPU, guaranteed=guaranteed),)),
    ]
    return Snapshot(
        nodes=tuple(node_at(n, used=PER_NODE) for n in range(NODES)),
        tree=QueueTree.of(queues),
        topology=Topology(keys=KEYS),
        admitted=tuple(admitted),
        pending=(Pending(workload=asked),),
    )


def run(snapshot: Snapshot) -> dict[str, float | bool]:
    """One decision."""
    arrays, budget = Arrays.of(snapshot), Budget()
    gc.collect()
    begin = time.process_time()
    plan = decide(snapshot, now=NOW, seed=1, budget=budget, arrays=arrays)
    seconds = time.process_time() - begin
    waits = plan.explanations["gang"].primary.token is not Token.SOLVER_DEFERRED
    refused = waits and not plan.evictions and not verify(snapshot, plan, now=NOW)
    return {"cpu_s": round(seconds, 3), "refused": refused}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return argparse.ArgumentParser(prog="python -m bench.infeasible", description=__doc__)


def main() -> None:
    """Print the figures; exit 1 where the gang is not refused."""
    parser().parse_args()
    import_module("ortools.sat.python.cp_model")  # as in the solver process, which has it loaded
    found = {name: run(full(loose, guaranteed=n)) for name, (loose, n) in CASES.items()}
    print(json.dumps(found))
    sys.exit(0 if all(case["refused"] for case in found.values()) else 1)


if __name__ == "__main__":
    main()

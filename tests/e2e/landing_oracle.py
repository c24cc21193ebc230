"""Asks kube-scheduler's own filters, as a library, whether the gangs of random cases land in every order that is tried.

No cluster runs: the program of tools/control-plane/landing-oracle takes cases by the line. It names the first pod that
found no node, with the order and the nodes that were picked before.
"""

from __future__ import annotations

import subprocess
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from queuer.kube.resources import shipped
from tests.e2e.landing_cases import LandingCase, landing_case
from tests.programs import landing_oracle

SHUFFLES = 2
"""Random orders of a case, beside the seven that are made for it."""
AHEAD = 8
"""Cases that the program has before its answer is read; their answers fit into a pipe."""


def ask(cases: Iterable[LandingCase], *, program: Path | None = None) -> Iterator[tuple[LandingCase, Any]]:
    """Each case with the oracle's `Answer` (main.go). `program`: None = built where it is missing."""
    program = landing_oracle() if program is None else program
    command = [str(program), f"--config={shipped('tools/control-plane/config/scheduler.yaml')}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        out, asked = process.stdout, deque[LandingCase]()
        for case in cases:
            process.stdin.write(msgspec.json.encode(_document(case)) + b"\n")
            process.stdin.flush()
            asked.append(case)
            if len(asked) > AHEAD:
                yield asked.popleft(), msgspec.json.decode(out.readline())
        process.stdin.close()
        while asked:
            yield asked.popleft(), msgspec.json.decode(out.readline())


def judge(seeds: Sequence[int]) -> tuple[Counter[str], list[str]]:
    """Counts, and a sentence for each case in which a pod found no node in some order."""
    counts, failures = Counter[str](), list[str]()
    for case, answer in ask(landing_case(seed, scheduler="default-scheduler") for seed in seeds):
        counts.update(case.counts())
        counts.update(orders=answer["runs"], placed=answer["placed"])
        if (failed := answer["failed"]) is not None:
            trail = ", ".join(f"{pod} on {node}" for pod, node in failed["trail"])
            text = f"{failed['pod']} of {failed['gang']} ({failed['order']}, {failed['pick']}): {failed['message']}"
            failures.append(f"{case.name} (scheduler-seed): {text} After {trail}")
    return counts, failures


def _document(case: LandingCase) -> dict[str, Any]:
    gangs = [
        {"uid": x.uid, "level": x.level or "", "hosts": sorted(x.hosts), "pods": x.pods}
        for x in case.launches
    ]
    seed = int(case.name.rpartition("-")[2])
    return {
        "name": case.name,
        "seed": seed,
        "shuffles": SHUFFLES,
        "nodes": case.nodes,
        "foreign": case.foreign,
        "gangs": gangs,
    }

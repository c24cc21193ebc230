"""Seconds until the command line answers: `--version`, `why`, and completion from what is kept. One process a run.

The API is a stub on loopback that answers at once, so that the time is the program's own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import Any

from bench.arguments import positive

_JOB = {
    "uid": "u1", "kind": "Job", "namespace": "team-a", "name": "llama", "queue": "root.a", "user": "alice",
    "priority": 0, "state": "Queued", "attempt": 1, "demand": {"nvidia.com/gpu": "64"}, "holds": {}, "domains": [],
    "submitted": "2026-11-21T10:00:00Z", "admitted": None, "landed": None, "finished": None, "deleted": None,
    "reason": None, "override": None, "required": "rack", "preferred": None, "admission": None, "timeline": [],
    "asOf": "2026-11-21T10:09:00Z",
    "podSets": [{"name": "main", "count": 8, "minCount": None, "requests": {"nvidia.com/gpu": "8"}}],
    "explanation": {
        "cycle": 7, "ageSeconds": 4.2, "verdict": "WAIT", "others": [], "wouldAdmit": [], "detail": {}, "next": "wait",
        "primary": {"token": "TopologyPlacementFailed", "verdict": "WAIT", "text": "no rack has room"},
    },
}  # fmt: skip
_QUEUES = {"items": [{"path": f"root.team-{number}"} for number in range(300)]}
_RUNS: Mapping[str, tuple[Sequence[str], Mapping[str, str]]] = {
    "version": (["--version"], {}),
    "why": (["why", "llama"], {}),
    "complete_verb": (
        [],
        {"_QUEUER_COMPLETE": "complete_bash", "COMP_WORDS": "queuer w", "COMP_CWORD": "1"},
    ),
    "complete_queue": (
        [],
        {"_QUEUER_COMPLETE": "complete_bash", "COMP_WORDS": "queuer jobs -q root.", "COMP_CWORD": "3"},
    ),
}
"""What is run: arguments, and what a shell sets beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of the runs of one command: seconds of wall clock, and of CPU, which a busy machine does not change much."""

    best_s: float
    median_s: float
    cpu_s: float


class _Stub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found: dict[str, Any] = _QUEUES if self.path.endswith("/queues") else _JOB
        if self.path.endswith("/timeline"):
            found = {"reasons": []}
        if "/workloads?" in self.path:
            found = {"items": [_JOB], "next": None}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.cli", description=__doc__)
    made.add_argument(
        "--runs", type=positive, default=10, help="of each command, after one that is not counted"
    )
    made.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    return made


def main() -> None:
    """Print the figures."""
    options = parser().parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        api = f"http://127.0.0.1:{server.server_port}"
        environment = {**os.environ, "QUEUER_API": api, "QUEUER_TOKEN": "t", "XDG_CACHE_HOME": home}
        found = {name: _measure(options.runs, *what, environment) for name, what in _RUNS.items()}
    server.shutdown()
    server.server_close()
    if options.json:
        print(json.dumps({name: asdict(figures) for name, figures in found.items()}))
        return
    for name, figures in found.items():
        print(
            f"{name:<15}best {figures.best_s:.3f} s, median {figures.median_s:.3f} s, CPU {figures.cpu_s:.3f} s"
        )


def _measure(
    runs: int, arguments: Sequence[str], shell: Mapping[str, str], environment: Mapping[str, str]
) -> Figures:
    command = [sys.executable, "-m", "queuer", *arguments]
    walls, cpus = [], []
    for _ in range(runs + 1):
        before, used = time.perf_counter(), _children()
        done = subprocess.run(command, env={**environment, **shell}, capture_output=True, check=False)
        walls.append(time.perf_counter() - before)
        cpus.append(_children() - used)
        if done.returncode or not done.stdout.strip():
            raise SystemExit(f"{' '.join(command)} failed: {done.stderr.decode()}")
    return Figures(
        best_s=round(min(walls[1:]), 3),
        median_s=round(median(walls[1:]), 3),
        cpu_s=round(median(cpus[1:]), 3),
    )


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

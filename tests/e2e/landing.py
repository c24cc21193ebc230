"""Lets the gangs of random cases land on real kube-schedulers: the shipped profile, and one as Kubernetes ships it.

    python -m tests.e2e.landing --cases 500 [--first SEED] [--oracle]

Each case is played on both profiles. All pods are made as the pins say, at once and in any order. A gang
fails if it is not bound whole in time, or leaves its required level. The failure names the case's seed.
With `--oracle` no cluster runs: the filters of kube-scheduler, as a library, judge many orders of each case.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import httpx2
import yaml

from bench import arguments
from queuer.local import stack
from queuer.local.cluster import Cluster
from queuer.local.controlplane import API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER, answers
from queuer.local.fleet import Fleet
from queuer.local.identities import ADMIN
from queuer.local.processes import Command
from queuer.local.progress import Reporter
from tests.e2e.landing_cases import LandingCase, Launch, landing_case
from tests.e2e.landing_jobs import CASE, NAMESPACE
from tests.e2e.landing_oracle import judge
from tests.waiting import PATIENCE

T = TypeVar("T")
SHIPPED, PLAIN = "default-scheduler", "plain-scheduler"
"""Scheduler names: the one of the shipped configuration, and one with the default profile of Kubernetes."""
PROFILES = (SHIPPED, PLAIN)
AT_ONCE, BATCH = 4, 40
"""Cases that are played at once, and drawn at once."""
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Results of cases: counts, and a sentence for each gang that did not land."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of `size`, the last one shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


@contextmanager
def plain_scheduler(cluster: Cluster) -> Iterator[None]:
    """A second kube-scheduler with the default profile, beside the cluster's own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    config = cluster.dir / f"{PLAIN}.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig(SCHEDULER)), "qps": 5000, "burst": 10000},
        "profiles": [{"schedulerName": PLAIN}],
    }
    config.write_text(yaml.safe_dump(document))
    certificates = cluster.layout.certificates / PLAIN
    arguments = [
        str(cluster.state.programs["kube-scheduler"]), f"--config={config}", "--bind-address=127.0.0.1",
        "--authentication-skip-lookup=true", f"--secure-port={port}", f"--cert-dir={certificates}",
    ]  # fmt: skip
    ready = answers(f"https://127.0.0.1:{port}/readyz")
    try:
        cluster.launch(Command(name=PLAIN, arguments=arguments, ready=ready))
        yield
    finally:
        cluster.stop([PLAIN])
        config.unlink()
        shutil.rmtree(certificates, ignore_errors=True)


def land(cluster: Cluster, seeds: Sequence[int], *, profiles: Sequence[str] = PROFILES) -> Outcome:
    """Play the cases of the seeds on each profile, several at once. `plain_scheduler` must run for `PLAIN`."""
    outcome = Outcome()
    headers = {"Authorization": f"Bearer {cluster.token(ADMIN)}"}
    with (
        httpx2.Client(
            base_url=cluster.api_url, headers=headers, verify=False, trust_env=False, timeout=PATIENCE
        ) as client,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        _namespace(client)
        for batch in batched(((seed, profile) for seed in seeds for profile in profiles), BATCH):
            # Drawn in this thread: msgspec must not learn a type in several threads at once.
            cases = [landing_case(seed, scheduler=profile) for seed, profile in batch]
            for counts, failures in pool.map(lambda case: _play(client, case), cases):
                outcome.counts.update(counts)
                outcome.failures += failures
    return outcome


def _namespace(client: httpx2.Client) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    response = client.post("/api/v1/namespaces", json=body)
    if response.status_code != httpx2.codes.CONFLICT:
        response.raise_for_status()


def _play(client: httpx2.Client, case: LandingCase) -> tuple[Counter[str], list[str]]:
    try:
        for node in case.nodes:
            client.post("/api/v1/nodes", json=node).raise_for_status()
        for pod in case.foreign:
            client.post(_PODS, json=pod).raise_for_status()
        failures = _launch(client, case)
    finally:
        here = {"labelSelector": f"{CASE}={case.name}"}
        client.delete(_PODS, params={**here, "gracePeriodSeconds": "0"}).raise_for_status()
        client.delete("/api/v1/nodes", params=here).raise_for_status()
    return case.counts(), [f"{case.name} (scheduler-seed): {text}" for text in failures]


def _launch(client: httpx2.Client, case: LandingCase) -> list[str]:
    """Make all pods, those that are bound already first, and wait until all are. Returns what went wrong."""
    made = [pod for launch in case.launches for pod in launch.pods]
    Random(case.name).shuffle(made)
    for pod in sorted(made, key=lambda pod: _node(pod) is None):
        client.post(_PODS, json=pod).raise_for_status()
    deadline = time.monotonic() + PATIENCE
    while True:
        pods = _pods(client, case)
        flying = [x for x in case.launches if not all(_node(pods[_name(pod)]) for pod in x.pods)]
        if not flying or time.monotonic() > deadline:
            landed = (x for x in case.launches if x not in flying)
            wrong = [text for launch in landed for text in _outside(launch, case, pods)]
            return [*wrong, *(_unbound(launch, pods) for launch in flying)]
        time.sleep(0.05)


def _pods(client: httpx2.Client, case: LandingCase) -> dict[str, Any]:
    answer = client.get(_PODS, params={"labelSelector": f"{CASE}={case.name}"}).raise_for_status().json()
    return {_name(pod): pod for pod in answer["items"]}


def _name(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["name"])


def _node(pod: Mapping[str, Any]) -> str | None:
    name: str | None = pod["spec"].get("nodeName")
    return name


def _outside(launch: Launch, case: LandingCase, pods: Mapping[str, Any]) -> list[str]:
    """The fault of a bound gang: outside its pin, or outside its required level."""
    labels = {_name(node): node["metadata"]["labels"] for node in case.nodes}
    nodes = {str(_node(pods[_name(pod)])) for pod in launch.pods}
    wrong = [f"{launch.uid} landed on {sorted(nodes - launch.hosts)}"] if nodes - launch.hosts else []
    if launch.level is not None and len(values := {labels[node].get(launch.level) for node in nodes}) > 1:
        wrong.append(f"{launch.uid} landed in {len(values)} domains of {launch.level}")
    return wrong


def _unbound(launch: Launch, pods: Mapping[str, Any]) -> str:
    left = [name for pod in launch.pods if not _node(pods[name := _name(pod)])]
    said = [c.get("message", "") for c in pods[left[0]]["status"].get("conditions", ())]
    which = f"{launch.uid} (cycle {launch.cycle})"
    return f"{which}: {len(left)} of {len(launch.pods)} pods not bound: {' '.join(said)}"


@contextmanager
def _cluster() -> Iterator[Cluster]:
    """The cluster of `QUEUER_TEST_CLUSTER`, else one for this run."""
    kept = os.environ.get("QUEUER_TEST_CLUSTER")
    home = Path(tempfile.mkdtemp(prefix="queuer-landing-"))
    parts = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
    options = stack.Options(
        dir=Path(kept) if kept else home / "local", fleet=Fleet(nodes=1, racks=1, blocks=1), parts=parts
    )
    try:
        yield Cluster.load(Path(kept)) if kept else stack.up(options, reporter=Reporter())
    finally:
        if not kept and (options.dir / "state.json").exists():
            stack.reset(Cluster.load(options.dir))
        shutil.rmtree(home)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(description="Random gangs on real kube-schedulers.")
    options.add_argument(
        "--cases", type=arguments.positive, default=500, help="on each profile (default: %(default)s)"
    )
    options.add_argument("--first", type=arguments.seed, default=1000, help="seed of the first case")
    options.add_argument("--oracle", action="store_true", help="ask the filters of kube-scheduler alone")
    return options


def main() -> int:
    """Print a line per failure and one JSON line; 1 where a gang did not land."""
    wanted = parser().parse_args()
    began = time.monotonic()
    seeds = range(wanted.first, wanted.first + wanted.cases)
    if wanted.oracle:
        counts, failures = judge(seeds)
        outcome = Outcome(counts=counts, failures=failures)
    else:
        with _cluster() as cluster, plain_scheduler(cluster):
            outcome = land(cluster, seeds)
    sys.stdout.write("".join(f"{line}\n" for line in outcome.failures))
    seconds = round(time.monotonic() - began, 1)
    report = {**outcome.counts, "failures": len(outcome.failures), "seconds": seconds}
    sys.stdout.write(json.dumps(report) + "\n")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())

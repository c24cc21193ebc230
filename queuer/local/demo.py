"""The story of `queuer local demo`: two teams share a cluster, one borrows, the other takes back its own.

Every beat does what a user or admin would do, shows it, and waits for the fact that it promises. The jobs of
an earlier play are removed first, so it can be played again; the cluster and team-b's jobs are left running.
A caller that looks at the dashboard in between takes the beats of `story` one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from enum import StrEnum
from typing import Any, TextIO

from queuer.domain.errors import NotFound
from queuer.domain.reasons import Token
from queuer.local import manifests
from queuer.local.cluster import QUEUER_PARTS, Cluster
from queuer.local.identities import ADMIN
from queuer.local.manifests import GANG, GPU, TEAM_A, TORCH, Sizes
from queuer.local.processes import ProcessState
from queuer.local.stage import DemoFailed, Stage

ALICE, BOB = "alice", "bob"


class Beat(StrEnum):
    """The fact that a beat of the story ends with."""

    OPENED = "two teams share the cluster"
    BORROWED = "team-b borrows what team-a leaves idle"
    WAITS = "the gang waits with a reason"
    RECLAIMED = "the gang runs where borrowers were evicted"
    LANDED = "all its pods are bound in one rack"
    TRAINED = "the PyTorchJob has succeeded"
    BACK = "the evicted jobs run again"
    ENDED = "it is said where to look next"


def play(cluster: Cluster, *, out: TextIO) -> None:
    """Play the whole story on a running local cluster. Raises QueuerError with the beat that failed."""
    _check_running(cluster)
    with closing(Stage(cluster, out=out)) as stage:
        for _ in story(stage):
            pass


def story(stage: Stage) -> Iterator[Beat]:
    """The story, which stands still after each beat until the next is asked for. Raises as `play` does.

    An admin may shorten team-b's `minRuntime` while the gang waits; the story finds that done, then.
    """
    sizes = Sizes.of(stage.nodes_by_rack(), stage.gpus_per_node())
    _opening(stage, sizes)
    yield Beat.OPENED
    borrowers = _borrow(stage, sizes)
    yield Beat.BORROWED
    _wait_with_reason(stage, sizes)
    yield Beat.WAITS
    victims = _reclaim(stage, sizes, borrowers)
    yield Beat.RECLAIMED
    _landed(stage, sizes)
    yield Beat.LANDED
    _pytorch(stage, sizes)
    yield Beat.TRAINED
    _back_again(stage, victims)
    yield Beat.BACK
    _closing(stage)
    yield Beat.ENDED


def _check_running(cluster: Cluster) -> None:
    for part in QUEUER_PARTS:
        if part not in cluster.state.parts or cluster.status(part).state is not ProcessState.RUNNING:
            raise NotFound(f"the {part} of {cluster.dir} does not run", hint="queuer local up")


def _opening(stage: Stage, sizes: Sizes) -> None:
    stage.beat(
        "1  A cluster, two teams",
        f"""{sizes.racks} racks of {sizes.nodes} nodes with {sizes.gpus} GPUs each: {sizes.total} GPUs.
        Kubernetes is real, only the kubelets are played. team-a and team-b are guaranteed half each; what one
        leaves idle the other may borrow. team-b's jobs are safe from eviction for their first
        {manifests.PROTECTED} (minRuntime).""",
    )
    stage.clean()
    tree = manifests.tree(sizes, min_runtime=manifests.PROTECTED)
    stage.show_yaml(tree)
    stage.apply(tree, file="tree.yaml")


def _borrow(stage: Stage, sizes: Sizes) -> dict[str, Mapping[str, Any]]:
    """Answers the borrowers by name."""
    small, large = manifests.partial_jobs(sizes), manifests.full_jobs(sizes)
    asked = sizes.total - sizes.free
    stage.beat(
        "2  team-b borrows",
        f"""team-a is idle. bob of team-b submits {len(large)} trainings of {sizes.nodes} nodes and then
        {len(small)} evaluations of {sizes.partial} nodes, {asked} GPUs in all: far more than his guarantee.
        Each must sit in one rack.""",
    )
    stage.create(BOB, large, file="trainings.yaml")
    _until_running(stage, [d["metadata"]["name"] for d in large], "the trainings to run", timeout=90)
    stage.create(BOB, small, file="evals.yaml")
    _until_running(stage, [d["metadata"]["name"] for d in small], "the evaluations to run", timeout=90)
    stage.queuer("queue", "tree", "--resource", GPU)
    stage.say(f"All run. {sizes.free} GPUs are left free, in {manifests.FRAGMENTS} racks.")
    return stage.live(BOB)


def _until_running(stage: Stage, names: Sequence[str], what: str, *, timeout: float = 60) -> None:
    """Wait until all of these jobs of team-b run."""

    def all_run() -> bool:
        live = stage.live(BOB)
        return all(live.get(name, {}).get("state") == "Running" for name in names)

    stage.until(what, all_run, timeout=timeout)


def _wait_with_reason(stage: Stage, sizes: Sizes) -> None:
    asked = sizes.nodes * sizes.gpus
    stage.beat(
        "3  team-a wants its share: a gang that waits, and says why",
        f"""alice of team-a submits one gang: {sizes.nodes} nodes x {sizes.gpus} GPUs = {asked}, all in one
        rack or not at all. {sizes.free} GPUs are free, but no rack has {sizes.nodes} free nodes.""",
    )
    gang = manifests.gang(sizes)
    stage.show_yaml(gang)
    stage.create(ALICE, [gang], file="gang.yaml")
    stage.until("the gang to be given a reason", lambda: _explained(stage.workload(ALICE, GANG)))
    stage.queuer("why", f"job/{GANG}", "-n", "team-a")
    if stage.pods(ALICE):
        raise DemoFailed("the gang waits, and yet it has pods")
    stage.say("It has no pod at all: a gang starts whole or not.")


def _explained(job: Mapping[str, Any] | None) -> bool:
    """Whether a cycle has looked at it and found a reason for it to wait."""
    return bool(job and job["reason"] and job["reason"]["token"] != Token.PENDING_EVALUATION)


def _reclaim(stage: Stage, sizes: Sizes, borrowers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Answers the names of the evicted."""
    stage.beat(
        "4  Reclaim: the cheapest sufficient victims leave",
        """team-a asks for less than its guarantee, so it may take it back from the borrower, but team-b's jobs are
        protected still. The admin shortens that. Now an eviction is made, because there is a proven place for the
        gang, and of all that would do it is the one that loses the least work.""",
    )
    stage.apply(manifests.tree(sizes, min_runtime=manifests.UNPROTECTED), file="tree.yaml")

    def evicted() -> set[str]:
        return {n for n, w in stage.live(BOB).items() if w["state"] == "Evicting" or w["attempt"] > 1}

    victims = stage.until("team-b's jobs to be evicted", evicted)
    stage.until("the gang to run", lambda: stage.state(ALICE, GANG) == "Running")
    victims |= evicted()
    gang = stage.workload(ALICE, GANG) or {}
    for name in sorted(victims):
        stage.write(f"    evicted: {_named(borrowers[name], until=gang['admitted'])}")
    stayed = [w for name, w in borrowers.items() if name not in victims]
    stage.write(f"    not touched: {len(stayed)} jobs, such as {_named(stayed[0], until=gang['admitted'])}")
    return sorted(victims)


def _named(job: Mapping[str, Any], *, until: str) -> str:
    return f"{job['name']}, {_lost(job, until=until)}"


def _lost(job: Mapping[str, Any], *, until: str) -> str:
    """The work that its eviction would lose: its GPUs for as long as it ran."""
    seconds = (datetime.fromisoformat(until) - datetime.fromisoformat(job["landed"])).total_seconds()
    gpus = int(job["demand"][GPU])
    return f"{gpus} GPUs for {seconds:.0f} s = {gpus * seconds:.0f} GPU-seconds of work"


def _landed(stage: Stage, sizes: Sizes) -> None:
    stage.beat(
        "5  The gang lands whole, in one rack",
        "kube-scheduler bound the pods, inside the rack that was pinned.",
    )
    racks = _racks(stage)
    listed = "\n".join(f"{rack}  {pods} pods" for rack, pods in sorted(racks.items()))
    stage.output(f"kubectl get pods -l job-name={GANG} -o wide    # as alice, counted by rack", listed)
    if list(racks.values()) != [sizes.nodes]:
        raise DemoFailed(f"the gang is spread over {len(racks)} racks: {dict(racks)}")
    stage.queuer("queue", "tree", "--resource", GPU)


def _racks(stage: Stage) -> Counter[str]:
    rack_of = stage.rack_of_node()
    pods = stage.pods(ALICE, f"job-name={GANG}")
    return Counter(rack_of[pod["spec"]["nodeName"]] for pod in pods if pod["spec"].get("nodeName"))


def _pytorch(stage: Stage, sizes: Sizes) -> None:
    stage.beat(
        "6  A PyTorchJob through the training-operator",
        """alice also fine-tunes: one master and three workers, which may sit anywhere. There is room, so it
        starts at once, and the training-operator runs it to its end.""",
    )
    stage.create(ALICE, [manifests.pytorchjob(sizes)], file="fine-tune.yaml")
    stage.until("the PyTorchJob to succeed", lambda: stage.state(ALICE, TORCH) == "Succeeded")
    kubectl = stage.cluster.kubectl(ALICE)
    stage.output(
        "kubectl get pytorchjobs    # as alice",
        kubectl.run("get", "pytorchjobs", "-n", "team-a", "-l", manifests.STORY),
    )


def _back_again(stage: Stage, victims: list[str]) -> None:
    stage.beat(
        "7  The evicted jobs come back",
        """An evicted job goes back to its queue with its first submit time. It waits, with a reason of its own,
        until the gang has ended and the rack is idle again; then it starts anew.""",
    )
    for name in victims:
        stage.queuer("why", f"job/{name}", "-n", "team-b")
    stage.until("the gang to succeed", lambda: stage.state(ALICE, GANG) == "Succeeded")
    _until_running(stage, victims, f"{', '.join(victims)} to run again")
    for name in victims:
        stage.queuer("why", f"job/{name}", "-n", "team-b")
    stage.queuer("queue", "tree", "--resource", GPU)


def _closing(stage: Stage) -> None:
    url, kubeconfig = stage.cluster.queuer_url, stage.cluster.kubeconfig(ADMIN)
    stage.beat("The end", "The cluster goes on running; `queuer local down` stops it.")
    stage.write(f"\n  Look:  {url}    (log in with the token in {kubeconfig})")
    stage.write("  Try, after these lines:")
    for line in stage.cluster.exports():
        stage.write(f"    {line}")
    for verb in ("jobs -q root.research", f"queue show {TEAM_A}", f"why job/{GANG} -n team-a"):
        stage.write(f"    queuer {verb}")

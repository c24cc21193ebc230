"""Every `next` that a waiting job's reader is offered is typed into a shell, on a real cluster, as that reader.

Each ends with 0 and leads forward: the reason is gone, or another one, or the command shows what the sentence names.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from queuer.domain.reasons import ROWS
from queuer.local.identities import TENANT_NAMESPACES
from tests.docs.conftest import GPU, TREE, Place
from tests.e2e.scene import HIGH
from tests.e2e.support import job_manifest, kubectl, wait_until
from tests.unit.test_next_steps import ADMITS, PARAMS, told

TEAM_A = "root.research.team-a"


def heads(command: str) -> set[str]:
    """The verbs of a command: `kubectl label`, `queuer queue show`."""
    words = [part.split() for part in command.split(" && ")]
    return {" ".join(each[: 3 if each[1] == "queue" else 2]) for each in words}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Somebody who reads why a job waits, and types what is offered."""

    place: Place
    home: Path
    name: str
    typed: set[str]

    def ask(self, job: str) -> dict[str, Any]:
        """The answer about a job of team-a; {} = nobody has seen it yet."""
        headers = {"Authorization": f"Bearer {self.place.cluster.token(self.name)}"}
        url = f"{self.place.cluster.queuer_url}/api/v1/workloads/by-ref/team-a/job/{job}"
        answer = httpx2.get(url, headers=headers, trust_env=False, timeout=60)
        return dict(answer.json()) if answer.is_success else {}

    def waits(self, job: str, *tokens: str, within: float = 40) -> dict[str, Any]:
        """The explanation, once the job waits for one of these reasons."""

        def told() -> dict[str, Any] | None:
            found = self.ask(job).get("explanation") or {}
            return found if (found.get("primary") or {}).get("token") in tokens else None

        return (
            wait_until(told, timeout=within, describe=lambda: f"{job} waits as {tokens}: {self.ask(job)}")
            or {}
        )

    def offered(self, job: str, *tokens: str, head: str = "") -> dict[str, Any]:
        """The same, once a command that begins so is offered: changes that help are tried when a cycle is stored."""
        return wait_until(
            lambda: (found := self.waits(job, *tokens))["next"] and found["next"].startswith(head) and found,
            timeout=40, describe=lambda: f"{job} is offered a command: {self.ask(job)}",
        )  # fmt: skip

    def becomes(self, job: str, *states: str, within: float = 40) -> dict[str, Any]:
        """The explanation, once the job is in one of these states."""

        def reached() -> dict[str, Any] | None:
            found = self.ask(job)
            return found["explanation"] if found.get("state") in states else None

        return (
            wait_until(reached, timeout=within, describe=lambda: f"{job} is {states}: {self.ask(job)}") or {}
        )

    def type(self, explanation: Mapping[str, Any]) -> str:
        """What the offered command prints. It must end with 0."""
        command = explanation["next"]
        assert command, explanation
        self.typed.update(heads(command))
        return self.run(command)

    def run(self, command: str) -> str:
        """The output of a command in a shell of this reader."""
        environment = {
            **self.place.environment(self.home),
            "KUBECONFIG": str(self.place.cluster.kubeconfig(self.name)),
        }
        done = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=120, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def typed() -> set[str]:
    return set()


@pytest.fixture
def alice(place: Place, tmp_path: Path, typed: set[str]) -> Iterator[Reader]:
    place.clean()
    kubectl(place.cluster, "admin", "apply", "-f", "-", input=json.dumps(HIGH))
    yield Reader(place=place, home=tmp_path, name="alice", typed=typed)
    kubectl(place.cluster, "admin", "uncordon", "--selector=kubernetes.io/hostname")
    kubectl(place.cluster, "admin", "delete", "-f", "-", input=json.dumps(HIGH))


@pytest.fixture
def admin(alice: Reader) -> Reader:
    return Reader(place=alice.place, home=alice.home, name="admin", typed=alice.typed)


def tree(alice: Reader, **team_a: Any) -> None:
    """The tree of the pages, with more said of team-a, once the controller has read it."""
    cluster, canary = alice.place.cluster, "root.research.canary"
    said = TREE["queues"]
    queues = {**said, TEAM_A: {**said[TEAM_A], **team_a}, canary: {"namespaces": ["team-a"]}}
    headers = {"Authorization": f"Bearer {cluster.token('admin')}", "If-Match": "*"}
    params = {"reason": "what a test asks for"}
    url = f"{cluster.queuer_url}/api/v1/queue-tree"
    answer = httpx2.put(
        url, params=params, json={**TREE, "queues": queues}, headers=headers, trust_env=False, timeout=60
    )
    assert answer.is_success, answer.text
    submit(alice, "canary", queue=canary, annotations=annotated(hold="true"))
    alice.waits("canary", "OnHold")


def submit(reader: Reader, *names: str, queue: str = TEAM_A, **wanted: Any) -> None:
    """Create jobs in the reader's own namespace."""
    namespace = TENANT_NAMESPACES[reader.name]
    for name in names:
        manifest = job_manifest(name, namespace=namespace, queue=queue, **wanted)
        kubectl(reader.place.cluster, reader.name, "create", "-f", "-", input=json.dumps(manifest))


def annotated(**values: str) -> dict[str, str]:
    return {f"queuer.dev/{key.replace('_', '-')}": value for key, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A job that can never start as it is. `named`: in its sentence; `queue`: that it is put into."""

    named: str
    queue: str = TEAM_A
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


FAULTS = {
    "typo": Fault(named="no such annotation", annotations=annotated(topology_requried="rack")),
    "min-count": Fault(named="did you mean", annotations={"queuer.dev/min-count.worker": "1"}),
    "no-duration": Fault(named="is not a duration", annotations=annotated(max_runtime="soon")),
    "no-flag": Fault(named="neither true nor false", annotations=annotated(preemptible="maybe")),
    "two": Fault(
        named="is not a duration", annotations=annotated(max_runtime="soon"),
        labels={"queuer.dev/priority-class": "queuer-hihg"},
    ),
    "no-class": Fault(named="there is no PriorityClass", labels={"queuer.dev/priority-class": "nosuch"}),
    "no-queue": Fault(named="does not exist", queue="root.research.team-bb"),
    "inner": Fault(named="takes no jobs itself", queue="root.research"),
    "not-mine": Fault(named="may not use queue", queue="root.research.team-b"),
    "no-path": Fault(named="", queue="Root.X"),
    "no-level": Fault(named="did you mean rack", annotations=annotated(topology_required="rak")),
    "odd-level": Fault(named="asks for level", annotations=annotated(topology_preferred="zzzz")),
}  # fmt: skip


def test_a_job_that_is_wrong_is_mended_by_what_is_offered(alice: Reader) -> None:
    """Misspelt keys, values that are none, queues that are none of its user's, levels that there are not."""
    for name, fault in FAULTS.items():
        submit(alice, name, queue=fault.queue, annotations=dict(fault.annotations), labels=dict(fault.labels))
    for name, fault in FAULTS.items():
        found = alice.offered(name, "Misconfigured")
        assert fault.named in found["primary"]["text"]
        alice.type(found)
    for name in FAULTS:
        alice.becomes(name, "Placing", "Running")


def test_a_hold_is_taken_off_as_it_was_put_on(alice: Reader, admin: Reader) -> None:
    submit(alice, "held", annotations=annotated(hold="yes"))
    alice.type(alice.offered("held", "Misconfigured"))
    alice.type(alice.offered("held", "OnHold"))
    alice.becomes("held", "Placing", "Running")
    submit(alice, "own", annotations=annotated(hold="true"))
    alice.waits("own", "OnHold")
    alice.run("queuer hold job/own -n team-a -y")
    alice.type(alice.offered("own", "OnHold", head="queuer release"))
    alice.becomes("own", "Placing", "Running")
    for verb in ("hold", "drain"):
        admin.run(f"queuer queue {verb} {TEAM_A} -y --reason 'maintenance of racks'")
        submit(alice, verb)
        found = alice.waits(verb, "Suspended")
        assert (found["verdict"], found["next"]) == ("HELD", None), "alice may not resume it"
        admin.type(admin.offered(verb, "Suspended"))
        alice.becomes(verb, "Placing", "Running")


def test_a_job_that_its_queue_refuses_asks_for_what_it_allows(alice: Reader) -> None:
    """The rules come while both are on hold."""
    submit(alice, "endless", annotations=annotated(hold="true"))
    high = {"queuer.dev/priority-class": "queuer-high"}
    submit(alice, "proud", annotations=annotated(hold="true", max_runtime="30m"), labels=high)
    for name in ("endless", "proud"):
        alice.waits(name, "OnHold")
    tree(alice, access={"maxRuntime": "1h", "maxPriority": "queuer-default"})
    for name in ("endless", "proud"):
        alice.type(alice.offered(name, "Misconfigured"))
        alice.type(alice.offered(name, "OnHold"))
        alice.becomes(name, "Placing", "Running")


def test_a_job_that_asks_too_much_asks_for_less(alice: Reader) -> None:
    """In one rack there are 8 nodes; half of the cluster is guaranteed."""
    submit(alice, "wide", pods=9, gpus=8, annotations=annotated(topology_required="rack"))
    alice.type(alice.offered("wide", "TopologyPlacementFailed"))
    alice.becomes("wide", "Placing", "Running")
    submit(alice, "safe", pods=17, gpus=8, annotations=annotated(preemptible="false"))
    alice.type(alice.offered("safe", "ExceedsMaxQuota", "WaitingForQuota"))
    alice.becomes("safe", "Placing", "Running")


def test_a_full_cluster_is_waited_for(alice: Reader) -> None:
    submit(alice, "first", pods=32, gpus=8, run_for="30s")
    alice.becomes("first", "Running")
    submit(alice, "second", gpus=8)
    alice.type(alice.offered("second", "WaitingForQuota", "BorrowingLimitReached", "TopologyPlacementFailed"))
    alice.becomes("second", "Placing", "Running")


def test_who_runs_has_ended_or_is_gone_is_looked_at(alice: Reader) -> None:
    submit(alice, "short", run_for="1s")
    submit(alice, "shorter", pods=1)
    done = alice.becomes("short", "Succeeded")
    assert "Complete" in alice.type(done)
    assert "shorter-" in alice.type(alice.becomes("shorter", "Running"))
    kubectl(alice.place.cluster, "alice", "delete", "job", "short", "-n", "team-a")
    wait_until(lambda: alice.ask("short").get("deleted"), timeout=20, describe="the job is gone")
    gone = alice.ask("short")["explanation"]
    assert "job/short " in (said := alice.type(gone))
    assert "shorter" not in said


def test_who_has_as_much_as_one_may_sees_what_runs(alice: Reader) -> None:
    tree(alice, access={"perUser": {"maxRunning": 1}})
    submit(alice, "runs")
    alice.becomes("runs", "Running")
    submit(alice, "more")
    assert "job/runs" in alice.type(alice.offered("more", "WaitingForQuota"))


@pytest.mark.parametrize(("head", "shown"), [("alice", "job/head"), ("bob", "2 waiting")])
def test_who_is_behind_sees_the_job_before_it_or_its_queue(alice: Reader, head: str, shown: str) -> None:
    """A job of another namespace is not named: the queue shows how many wait."""
    room = [{"resource": GPU, "guaranteed": 16, "limit": 16}]
    tree(alice, policy={"order": "strict"}, namespaces=["team-a", "team-b"], quota=room)
    submit(alice, "runs", gpus=8)
    alice.becomes("runs", "Running")
    submit(Reader(place=alice.place, home=alice.home, name=head, typed=alice.typed), "head", pods=2, gpus=8)
    second = int(time.time())  # jobs of one second have no order by age
    wait_until(lambda: int(time.time()) > second, timeout=5, describe="the next second")
    submit(alice, "behind", gpus=8)
    assert shown in alice.type(alice.offered("behind", "BehindInQueue"))


def test_nodes_that_are_away_are_shown(alice: Reader) -> None:
    kubectl(alice.place.cluster, "admin", "cordon", "--selector=kubernetes.io/hostname")
    submit(alice, "nowhere")
    assert alice.type(alice.offered("nowhere", "NodesUnavailable"))


def test_every_command_was_typed(typed: set[str]) -> None:
    """Those that tests/unit knows of: a step that is added there is added here."""
    known = {command for _, _, _, command in PARAMS if command}
    known |= {said for _, said in ADMITS if said.startswith(("kubectl", "queuer"))}
    known |= {step.command for token in ROWS if (step := told(token, {})).command}
    assert not {head for command in known for head in heads(command)} - typed

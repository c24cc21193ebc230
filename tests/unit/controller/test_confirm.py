"""Nobody waits for the pods of others to be read, and nothing is given away on a guess."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp import web

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.landing import confirm
from queuer.controller.landing.confirm import Confirmer
from queuer.controller.landing.writes import settle_touched
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts
from queuer.domain.errors import Unavailable
from queuer.domain.workload import State, Workload
from tests.kube.stub import Stub, serving
from tests.unit.landed import LIMITS
from tests.unit.make import gang, placed
from tests.waiting import beside, until


def leaving(uid: str, namespace: str = "ns", *, admission: str = "adm") -> Live:
    """A workload whose job was deleted, and of which no pod is seen."""
    workload = gang(uid, namespace=namespace)
    return Live(workload=workload, state=State.FAILED, placement=placed(id=admission), deleted=True)


class Pods:
    """`answers`: by uid, the last one again and again; None = the read never ends."""

    def __init__(self, **answers: Sequence[bool | Exception | None]) -> None:
        self.reads, self._answers = Counter[str](), {uid: list(given) for uid, given in answers.items()}

    async def has_pods(self, workload: Workload, **_: float) -> bool:
        self.reads[workload.uid] += 1
        answers = self._answers[workload.uid]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)


@asynccontextmanager
async def confirming(pods: Pods, *lives: Live) -> AsyncIterator[tuple[ClusterState, Confirmer]]:
    state = ClusterState()
    for live in lives:
        state.put(live)
    confirmer = Confirmer(pods, state, lost_after=300.0, clock=lambda: 0.0)
    async with beside(confirmer.run()):
        yield state, confirmer


def released(state: ClusterState, confirmer: Confirmer) -> list[str]:
    """A round's releases, after a look at all that was touched."""
    changes = Round(state.live, now=1.0)
    jobs = cast(Any, None)
    settle_touched(
        changes, state.take_touched(99), state=state, jobs=jobs, confirmer=confirmer, limits=LIMITS
    )
    gone = [uid for uid, change in changes.items() if change.ends]
    for uid in gone:
        state.drop(uid)
    return gone


async def test_a_namespace_whose_pods_are_never_read_holds_up_nobody_else() -> None:
    slow = [leaving(f"s{i}", "slow") for i in range(50)]
    pods = Pods(quick=[False], **{live.uid: [None] for live in slow})
    async with confirming(pods, *slow, leaving("quick", "other")) as (state, confirmer):
        assert released(state, confirmer) == [], "the round waits for no read"
        await until(lambda: bool(state.touched))
        assert released(state, confirmer) == ["quick"]
        assert len(pods.reads) < 10, "nor are all connections taken"


async def test_a_read_that_fails_or_finds_a_pod_is_made_again_and_nothing_is_given_away() -> None:
    pods = Pods(u=[Unavailable("away"), True, False])
    async with confirming(pods, leaving("u")) as (state, confirmer):
        assert released(state, confirmer) == []
        for _ in range(20):
            state.touch("u")
            assert released(state, confirmer) == [], "looking more often asks no more often"
            await asyncio.sleep(0)
        assert pods.reads["u"] == 1
        await until(lambda: bool(state.touched))
        assert released(state, confirmer) == ["u"]
        assert pods.reads["u"] == 3


async def test_a_read_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "_READ_SECONDS", 0.01)
    async with confirming(Pods(u=[None, False]), leaving("u")) as (state, confirmer):
        released(state, confirmer)
        await until(lambda: bool(state.touched))
        assert released(state, confirmer) == ["u"]


async def test_word_is_good_for_one_look_at_the_admission_that_was_read() -> None:
    pods = Pods(u=[True, False])
    async with confirming(pods, leaving("u")) as (state, confirmer):
        released(state, confirmer)
        await until(lambda: pods.reads["u"] == 1)
        state.put(leaving("u", admission="next"))
        released(state, confirmer)
        await until(lambda: pods.reads["u"] == 2)
        await until(lambda: bool(state.touched))
        state.live["u"] = replace(state.live["u"], state=State.RUNNING, deleted=False, landed=1.0)
        state.take_touched(99)
        assert confirmer.take_word("u")
        assert not confirmer.take_word("u")


class Server:
    """Has pods of many jobs in one namespace; keeps the selectors that it was asked for."""

    def __init__(self) -> None:
        self.selectors: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/namespaces/ns/pods"
        self.selectors.append(request.query["labelSelector"])
        held = {"queuer.dev/workload=ours", "batch.kubernetes.io/controller-uid=beside"}
        uid = request.query["labelSelector"].partition("=")[2]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": True}
        pod = {
            "metadata": {"name": "p", "uid": "p", "namespace": "ns", "ownerReferences": [owner]},
            "spec": {},
        }
        items = [pod] if request.query["labelSelector"] in held else []
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


JOB, OPERATOR = "training.kubeflow.org/job-name", "training.kubeflow.org/operator-name"


@pytest.mark.parametrize(
    ("kind", "uid", "name", "expected", "selectors"),
    [
        ("Job", "ours", "j", True, ["queuer.dev/workload=ours"]),
        ("Job", "beside", "j", True, ["queuer.dev/workload=beside", "batch.kubernetes.io/controller-uid=beside"]),
        ("Job", "u", "j", False, ["queuer.dev/workload=u", "batch.kubernetes.io/controller-uid=u"]),
        ("PyTorchJob", "u", "j", False, ["queuer.dev/workload=u", f"{JOB}=j,{OPERATOR}=pytorchjob-controller"]),
        ("PyTorchJob", "u", "j" * 64, False, ["queuer.dev/workload=u"]),
    ],
)  # fmt: skip
async def test_the_pods_of_one_job_alone_are_read(
    kind: str, uid: str, name: str, expected: bool, selectors: list[str]
) -> None:
    server = Server()
    async with serving(cast(Stub, server)) as client:
        jobs = ClusterJobs(client, ClusterState(), Facts())
        workload = replace(leaving(uid).workload, kind=kind, name=name)
        assert await jobs.has_pods(workload, now=0.0, lost_after=300.0) is expected
    assert server.selectors == selectors

"""The overview: what needs somebody, and who holds room outside the queues."""

from __future__ import annotations

import copy
import time
from typing import Any
from uuid import uuid4

import pytest

from queuer.controller.landing.writes import resting
from queuer.controller.memory.live import Live
from queuer.domain.outside import Outside
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State
from queuer.store import outbox, rollup, workloads
from queuer.store.engine import begin
from queuer.store.tables import EntryKind, NotAsked
from queuer.store.workloads import Intake
from tests.api.cli import run
from tests.api.identity import Api
from tests.api.rows import GPU, TREE, A, Author, B, waits
from tests.api.test_queue_figures import decided
from tests.store.support import NOW, Eviction, workload


async def attention(api: Api) -> list[dict[str, Any]]:
    """What needs somebody."""
    found: list[dict[str, Any]] = (await api.get("/api/v1/overview")).json()["attention"]
    return found


async def test_jobs_that_run_without_a_queue_are_not_said_to_never_start(api: Api, author: Author) -> None:
    await author.tree()
    await author.misconfigured(workload("wrong", queue=A), "a field")
    await author.misconfigured(workload("lost", queue="root.gone"), "it runs", queue="root.gone", runs=True)
    assert [(item["severity"], item["text"]) for item in await attention(api)] == [
        ("warning", "1 job runs, and no queue counts it: apply the tree that it was in"),
        ("info", "1 job can never start as it is"),
    ]
    listed = (await api.get("/api/v1/workloads?unstartable=true")).json()["items"]
    assert [row["uid"] for row in listed] == ["wrong"]
    lost = (await api.get("/api/v1/workloads/lost")).json()
    assert (lost["reason"]["unstartable"], lost["explanation"]["detail"]["ahead"]) == (False, None)


async def test_an_eviction_that_the_api_server_does_not_take_needs_somebody(api: Api, author: Author) -> None:
    """An admission that is taken back before it reached its job is none."""
    await author.tree()
    runs, undone = workload("runs", queue=A), workload("undone", queue=A)
    await author.submit(runs, undone)
    await author.cycle(admit=[runs, undone])
    undo = outbox.Effect(kind=EntryKind.WITHDRAW, uid="undone", admission_id=str(uuid4()), patch={})
    async with begin(author.engine) as connection:
        await outbox.put(connection, author.epoch, [undo], at=NOW)
    assert not [item for item in await attention(api) if "evicted" in item["text"]]
    await author.evict(Eviction(uid="runs", cause="command", patch={}))
    said = "1 job is evicted, and the API server has not taken that"
    assert ("stuck", said) in [(item["kind"], item["text"]) for item in await attention(api)]
    for silent, away in ((60.0, None), (0.0, 60.0)):
        await author.beat(silent=silent, away=away)
        kinds = {item["kind"] for item in await attention(api)}
        assert ("controllerStale" in kinds, "stuck" in kinds) == (True, False), "nobody has asked it"


async def test_a_job_whose_pods_do_not_run_is_told_with_what_it_holds(api: Api, author: Author) -> None:
    """All its pods are on nodes, so nothing gives it up: an image is missing, and it holds its quota without end."""
    await author.tree()
    starts = workload("starts", queue=A, gpus=8, pods=2)
    await author.submit(starts)
    await author.cycle(admit=[starts])
    said = (
        "1 job was admitted, and not all its pods run; it holds 16 gpu: queuer jobs --state Admitted,Placing"
    )
    assert [(item["kind"], item["text"]) for item in await attention(api) if item["kind"] == "stuck"] == [
        ("stuck", said)
    ]
    told = (await api.get("/api/v1/workloads/starts")).json()["explanation"]
    (line,) = (row["text"] for row in told["paragraphs"] if row["label"] == "not running")
    assert line.startswith("not all its pods run ")
    assert line.endswith("after it was admitted, and it holds 16 gpu meanwhile")
    assert told["do"].startswith("look why not all its pods run")
    assert told["next"].startswith("kubectl get pods -n ")


async def test_a_job_that_needs_an_operator_is_attention_and_one_that_lacks_a_volume_is_not(
    api: Api, author: Author
) -> None:
    """The owner of the job makes its claim: that is a change, in the overview as in its own answer."""
    await author.tree()
    await author.submit(*(workload(uid, queue=A) for uid in ("volume", "taint")))
    live = Live(workload=workload("volume", queue=A), state=State.QUEUED, failures=2, rest=NOW + 60)
    missing = resting(live, '0/4 nodes are available: persistentvolumeclaim "data" not found')
    await author.cycle(explain={"volume": missing, "taint": resting(live, "0/4 nodes are available")})
    found = (await api.get("/api/v1/overview")).json()
    item = next(item for item in found["attention"] if item["kind"] == "escalated")
    assert (item["count"], item["text"]) == (1, "1 job needs an operator: AdmittedNotPlaced 1")
    verdicts = {(row["token"], row["verdict"]): row["jobs"] for row in found["reasons"]}
    assert verdicts == {("AdmittedNotPlaced", "CHANGE"): 1, ("AdmittedNotPlaced", "ESCALATE"): 1}
    told = (await api.get("/api/v1/workloads/volume")).json()
    assert (told["reason"]["verdict"], told["reason"]["unstartable"]) == ("CHANGE", False)
    assert "its owner has to create PersistentVolumeClaim data" in told["reason"]["text"]
    assert told["explanation"]["do"].startswith("create PersistentVolumeClaim data in namespace")


async def test_the_overview_names_what_needs_somebody(api: Api, author: Author) -> None:
    await author.tree()
    empty = (await api.get("/api/v1/overview")).json()
    assert (empty["attention"], empty["reasons"], empty["series"], empty["counts"]) == ([], [], [], {})
    queues = {**TREE["queues"], B: {"quota": [{"resource": GPU, "guaranteed": 8, "limit": 8}]}}
    runs = [workload(f"b{n}", queue=B, gpus=8, preemptible=False) for n in range(4)]
    await decided(author, workload("a1", queue=A, gpus=8, pods=2), runs=runs)
    await author.tree({**TREE, "queues": queues})
    await author.misconfigured(workload("wrong", queue=A), "a field")
    await author.misconfigured(workload("stray", queue="short"), "no queue is named short")
    async with begin(author.engine) as connection:
        await rollup.record(connection, author.epoch, at=time.time())
    found = (await api.get("/api/v1/overview")).json()
    told = {item["kind"]: item for item in found["attention"]}
    assert list(told) == ["starved", "overLimit", "stuck", "nodesOut", "unstartable"]
    out = told["nodesOut"]
    assert (out["severity"], out["text"]) == ("info", "1 node is cordoned; 8 gpu are free there")
    assert (told["starved"]["ref"], told["overLimit"]["ref"]) == (A, B)
    assert "of 16 gpu" in told["starved"]["text"]
    assert "24 gpu" in told["overLimit"]["text"]
    long = [item["since"] for item in found["attention"] if "for room longer than is usual" in item["text"]]
    assert len(list(filter(None, long))) == 1, "how long is told by `since` alone"
    assert (found["attentionTotal"], told["unstartable"]["count"]) == (len(found["attention"]), 2)
    gpus = next(c for c in found["capacity"] if c["resource"] == GPU)
    assert [gpus[part] for part in ("allocatable", "used", "free", "unplaceable")] == ["64", "32", "24", "8"]
    reasons = {r["token"]: (r["verdict"], r["jobs"], r["amounts"][GPU]) for r in found["reasons"]}
    assert reasons["Misconfigured"] == ("CHANGE", 2, "2")
    assert sum(jobs for _, jobs, _ in reasons.values()) == 3
    assert (found["counts"], len(found["at"])) == ({"Queued": 3, "Admitted": 4}, 1)
    line = next(s for s in found["series"] if s["resource"] == GPU)
    assert (line["used"], line["pending"]) == (["32"], ["16"])
    await author.beat(silent=60)
    first = (await api.get("/api/v1/overview")).json()["attention"][0]
    assert (first["kind"], first["severity"]) == ("controllerStale", "critical")


def outside(name: str, gpus: int, *, namespace: str = "team-b", **more: Any) -> Outside:
    """Pods of 8 GPUs that no queue pays for."""
    amounts = {GPU: gpus, "pods": gpus // 8}
    return Outside(namespace=namespace, kind="Job", name=name, amounts=amounts, **more)


SYSTEM = Outside(owners=2, system=True, amounts={GPU: 2, "pods": 2})


async def test_pods_that_no_queue_pays_for_are_told_with_names_to_those_who_may_have_them(
    shared: Api, author: Author
) -> None:
    """Guards against full nodes beside "FREE 64", and against names of a namespace that the caller does not see."""
    await author.tree()
    await author.submit(workload("a1", queue=A, gpus=8, pods=5))
    strangers = [outside("big", 24), outside("mine", 8, namespace="team-a"), outside("small", 8), SYSTEM]
    await author.cycle(outside=strangers, explain={"a1": waits()})
    admin, alice = [
        (await shared.get("/api/v1/overview", headers={"user": user})).json() for user in ("root", "alice")
    ]
    gpus = next(each for each in admin["capacity"] if each["resource"] == GPU)
    parts = ("allocatable", "used", "outside", "unplaceable", "free")
    assert [gpus[part] for part in parts] == ["64", "0", "42", "8", "14"]
    rows = [(row["namespace"], row["name"], row["pods"], row["system"]) for row in admin["outside"]]
    assert rows == [
        ("team-b", "big", 3, False), ("team-a", "mine", 1, False), ("team-b", "small", 1, False),
        (None, None, 2, True),
    ]  # fmt: skip
    names = [row["name"] for row in alice["outside"]]
    assert names == [None, "mine", None, None]
    said = "40 gpu are used by pods that no queue pays for"
    told = [next(i for i in found["attention"] if i["kind"] == "outside") for found in (admin, alice)]
    assert [item["severity"] for item in told] == ["warning"] * 2, "a job lacks it"
    assert told[0]["text"] == f"{said}: Job team-b/big (3 pods), Job team-a/mine (1 pod) and 1 other"
    assert told[1]["text"] == f"{said}: Job team-a/mine (1 pod) and 2 others"


@pytest.mark.parametrize(
    ("strangers", "guaranteed", "why", "severity"),
    [
        ([outside("big", 8)], 64, None, "info"),  # 56 are left for them
        ([outside("big", 8)], 56, None, None),
        ([outside("big", 8)], 65, None, "info"),  # all 64 that there are
        ([outside("big", 40)], 8, waits(), "warning"),
        ([outside("big", 40)], 8, waits(Token.ON_HOLD), None),
        ([outside("big", 16)], 8, waits(), None),  # more is left than they hold
        ([SYSTEM], 64, waits(), None),  # every cluster has these
        ([Outside(namespace="n", kind="Job", name="web", amounts={"cpu": 1000})], 64, waits(), None),
    ],
)
async def test_pods_outside_are_a_matter_only_where_somebody_lacks_what_they_hold(
    api: Api,
    author: Author,
    strangers: list[Outside],
    guaranteed: int,
    why: Explanation | None,
    severity: str | None,
) -> None:
    tree = copy.deepcopy(TREE)
    tree["queues"]["root.research"]["quota"] = [{"resource": GPU, "guaranteed": guaranteed}]
    for team in (A, B):
        tree["queues"][team]["quota"] = []
    await author.tree(tree)
    if why is not None:
        await author.submit(workload("a1", queue=A, gpus=8, pods=8))
    await author.cycle(outside=strangers, explain={} if why is None else {"a1": why})
    found = await attention(api)
    assert [i["severity"] for i in found if i["kind"] == "outside"] == ([severity] if severity else [])


async def test_jobs_that_hang_in_unmanaged_namespaces_need_somebody(api: Api, author: Author) -> None:
    """Guards their queue, too: what is in no line is no demand, is ahead of nobody, and is not called unstartable."""
    await author.tree()
    await author.submit(workload("a2", queue=A, gpus=8, submitted=NOW + 1))
    why = Explanation(
        primary=Reason(Token.SUSPENDED, {"namespace": "team-a", "unmanagedSince": NOW, "started": False})
    )
    row = Intake(workload=workload("a1", queue=A, gpus=8), not_asked=NotAsked.MISCONFIGURED, explanation=why)
    async with begin(author.engine) as connection:
        await workloads.intake(connection, author.epoch, [row], at=NOW)
    await author.cycle(unmanaged=2)
    found = await attention(api)
    said = "2 suspended jobs with a queue label in unmanaged namespaces: queuer doctor names them"
    assert [i["text"] for i in found if i["kind"] == "unmanaged"] == [said]
    queue = next(q for q in (await api.get("/api/v1/queues")).json()["items"] if q["path"] == A)
    counts = ("pendingWorkloads", "heldWorkloads", "unstartableWorkloads")
    assert [queue[count] for count in counts] == [1, 1, 0]
    other = (await api.get("/api/v1/workloads/a2/explanation")).json()
    assert other["detail"]["ahead"] == {"gangs": 0, "of": 1}
    told = (await api.get("/api/v1/workloads/a1/explanation")).json()
    assert told["primary"]["params"]["unmanagedSince"].endswith("Z")
    assert (told["verdict"], told["detail"]["ahead"]) == ("HELD", None)


async def test_the_root_of_the_tree_has_what_pods_outside_use(api: Api, author: Author) -> None:
    """`status` has them, too. What is reserved is not free."""
    await author.tree()
    await author.cycle(outside=[outside("big", 24)], reserved={GPU: 16})
    accounts = {
        queue["path"]: next(a["outside"] for a in queue["accounts"] if a["resource"] == GPU)
        for queue in (await api.get("/api/v1/queues")).json()["items"]
    }
    assert (accounts["root"], accounts[A]) == ("24", None)
    tree = await run(api, "queue", "tree")
    assert "24 gpu more are used by pods that no queue pays for: queuer status" in tree.err
    status = await run(api, "status")
    assert [line.split() for line in status.out.splitlines() if line.startswith(("RESOURCE", GPU))] == [
        ["RESOURCE", "USED", "OUTSIDE", "RESERVED", "FREE", "ALLOCATABLE"],
        [GPU, "0", "24", "16", "16", "64"],
    ]

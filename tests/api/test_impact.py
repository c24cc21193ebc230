"""The effect of a planned change on waiting jobs, by the decision itself, on the newest stored cycle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queuer.api import latest_cycle
from queuer.api.identity.rights import administering, reading
from queuer.api.latest_cycle import LatestCycle
from queuer.domain.document import parse
from queuer.domain.queue import QueueTree
from queuer.domain.workload import Workload
from queuer.solver.records import Pending
from queuer.solver.stored import encode
from tests.api.cli import run
from tests.api.identity import EVERYTHING, Api, Table
from tests.api.problems import problem_of
from tests.api.rows import GPU, NOW, RACK, Author, decided_on, two_racks
from tests.store.support import workload

PATH = "/api/v1/changesets"
A, B = "root.a", "root.b"
KIND = {"apiVersion": "queuer.dev/v1", "kind": "QueueTree"}


def tree(**limits: int) -> dict[str, Any]:
    """Leaves a and b with these limits."""
    return {
        **KIND,
        "queues": {
            f"root.{name}": {"namespaces": [f"team-{name}"], "quota": [{"resource": GPU, "limit": limit}]}
            for name, limit in limits.items()
        },
    }


def job(uid: str, queue: str, gpus: int) -> Workload:
    """One pod, from the namespace of its queue."""
    return workload(uid, queue=queue, gpus=gpus, namespace=f"team-{queue[-1]}")


async def decided(
    author: Author,
    document: dict[str, Any],
    *waiting: Workload,
    runs: tuple[Workload, ...] = (),
    over_limit: tuple[Workload, ...] = (),
    dead: int = 0,
) -> None:
    """Four nodes of 8 GPUs on which these wait under a tree, which is in force; the cycle is stored. `runs`: one
    a node, since a minute; `over_limit`: not offered, as their users have what they may; `dead`: GPUs of the first node
    that it has no more.
    """
    await author.tree(document)
    await author.submit(*waiting, *runs)
    snapshot = two_racks(QueueTree.of(parse(document).queues), *waiting, runs=dict(enumerate(runs)))
    whole, *others = snapshot.nodes
    left = {**whole.node.allocatable, GPU: 8 - dead}
    nodes = (replace(whole, node=replace(whole.node, allocatable=left)), *others)
    beside = tuple(Pending(workload=made) for made in over_limit)
    cycle = decided_on(replace(snapshot, nodes=nodes, over_limit=beside))
    made = cycle.plan
    assert made is not None
    admitted = {admission.uid for admission in made.admissions}
    await author.cycle(admit=[*runs, *(w for w in waiting if w.uid in admitted)], explain=made.explanations)
    await author.keep(encode(cycle))


async def plan(api: Api, document: object, **headers: str) -> dict[str, Any]:
    found = await api.post(PATH, json=document, headers=headers)
    assert found.status_code == 201, found.text
    body: dict[str, Any] = found.json()
    return body


async def test_a_raise_names_who_would_start(api: Api, author: Author) -> None:
    """Not those who start anyway, nor those for whom it is not enough."""
    await decided(author, tree(a=8, b=8), job("a1", A, 8), job("a2", A, 8), job("a3", A, 8), job("b1", B, 8))
    made = await plan(api, tree(a=16, b=8))
    assert made["impact"]["cycle"] == 1
    assert [each["uid"] for each in made["impact"]["starts"]["jobs"]] == ["a2"]
    assert made["impact"]["starts"]["amounts"][GPU] == "8"
    assert made["impact"]["unstartable"] == {"count": 0, "amounts": {}, "jobs": []}


async def test_a_cut_names_who_could_never_start(api: Api, author: Author) -> None:
    await decided(author, tree(a=8, b=8), job("a1", A, 4), job("a2", A, 8), job("b1", B, 8))
    made = await plan(api, tree(a=6, b=8))
    assert made["impact"]["starts"]["count"] == 0
    assert [each["uid"] for each in made["impact"]["unstartable"]["jobs"]] == ["a2"]


async def test_a_cut_names_its_victims_and_who_of_them_could_never_come_back(
    api: Api, author: Author, tmp_path: Path
) -> None:
    await decided(author, tree(a=16, b=8), runs=(job("small", A, 4), job("large", A, 8)))
    document = tmp_path / "tree.yaml"
    document.write_text(json.dumps(tree(a=6, b=8)))
    made = await plan(api, tree(a=6, b=8))
    assert [row["uid"] for row in made["impact"]["unstartableRunning"]["jobs"]] == ["large"]
    assert made["impact"]["unstartable"]["count"] == 0
    victims = [f"{row['namespace']}/{row['name']}" for row in made["victims"]["jobs"]]
    assert victims
    shown = await run(api, "plan", "-f", str(document), "--effect", "evict")
    assert f"in the queue again: {', '.join(victims)}" in shown.out
    (lost,) = [line for line in shown.out.splitlines() if "could never start again" in line]
    assert lost.endswith("after leaving: team-a/large")


def each(document: dict[str, Any], gpus: int) -> dict[str, Any]:
    """The same tree where each user of a may have so many."""
    queues = document["queues"]
    access = {"perUser": {"limits": {GPU: gpus}}}
    return {**document, "queues": {**queues, A: {**queues[A], "access": access}}}


async def test_limits_of_users_count_among_what_changes(api: Api, author: Author) -> None:
    """A job beyond its user's limit is offered with a higher limit, and never with one below its request."""
    beside = replace(job("a3", A, 8), user="eve", submitted=NOW + 1)
    waiting = (job("a1", A, 8), job("a2", A, 8))
    owned = tuple(replace(made, user="eve") for made in waiting)
    await decided(author, each(tree(a=32), 16), *owned, over_limit=(beside,))
    raised = await plan(api, each(tree(a=32), 24))
    assert [row["uid"] for row in raised["impact"]["starts"]["jobs"]] == ["a3"]
    cut = await plan(api, each(tree(a=32), 4))
    assert [row["uid"] for row in cut["impact"]["unstartable"]["jobs"]] == ["a3"]
    assert cut["impact"]["starts"]["count"] == 0


async def test_whom_a_queue_takes_no_more_could_never_start(api: Api, author: Author) -> None:
    """For its time limit, its namespaces, or flavors that no node has; also who waits for the own user alone."""
    beside = replace(job("a3", A, 8), user="eve", submitted=NOW + 1, max_runtime=3600.0)
    owned = tuple(replace(job(uid, A, 8), user="eve", max_runtime=3600.0) for uid in ("a1", "a2"))
    document = each(tree(a=32), 16)
    await decided(author, document, *owned, over_limit=(beside,))
    own = document["queues"][A]
    for change in (
        {"access": {**own["access"], "maxRuntime": "30m"}},
        {"namespaces": ["team-b"]},
        {"quota": [{"resource": GPU, "limit": 4}]},
    ):
        made = await plan(api, {**document, "queues": {A: {**own, **change}}})
        assert [row["uid"] for row in made["impact"]["unstartable"]["jobs"]] == ["a3"], change


async def test_who_could_never_start_before_is_none_that_could_start_no_more(
    api: Api, author: Author
) -> None:
    """As a queue that drains tells no such reason, opening it would seem to make it so."""
    drained = tree(a=8)
    drained["queues"][A]["state"] = "draining"
    await decided(author, drained, job("a1", A, 9), job("a2", A, 8))
    made = await plan(api, {**drained, "queues": {A: {**drained["queues"][A], "state": "open"}}})
    assert [row["uid"] for row in made["impact"]["starts"]["jobs"]] == ["a2"]
    assert made["impact"]["unstartable"]["count"] == 0


async def test_without_a_cycle_it_is_said_so(api: Api, author: Author) -> None:
    await author.tree(tree(a=8))
    made = await plan(api, tree(a=9))
    assert made["impact"] is None
    assert "no decision" in made["impactMissing"]


async def test_a_put_asks_for_no_impact(api: Api, author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as a cycle, and nobody is shown it; what the nodes say of the change is told."""

    async def asked(_: LatestCycle, question: Any, *, party: str = "") -> None:
        seen.append((question.impact, party))

    seen: list[tuple[bool, str]] = []
    monkeypatch.setattr(LatestCycle, "ask", asked)
    put = await api.put("/api/v1/queue-tree", json=tree(a=8), headers={"If-Match": "*"})
    assert put.status_code == 200, put.text
    await plan(api, tree(a=9))
    assert seen == [(False, "unauthenticated"), (True, "unauthenticated")]
    assert (await api.get("/api/v1/changesets/1")).json()["impactMissing"].startswith("a PUT asks for none")


async def test_a_change_can_be_made_while_nothing_answers_about_the_cycle(
    api: Api, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overloaded or broken child costs a plan its impact, and nobody the way to cut a quota."""
    await decided(author, tree(a=8), job("a1", A, 9))
    monkeypatch.setattr(latest_cycle, "LINE", 0)
    made = await plan(api, tree(a=9))
    assert made["impact"] is None
    assert "wait already" in made["impactMissing"]


async def test_queues_that_come_and_go(api: Api, author: Author) -> None:
    """Jobs of a queue that goes are told as having none; the decision looks at the others."""
    await decided(author, tree(a=8, b=8), job("a1", A, 8), job("b1", B, 9))
    made = await plan(api, {**tree(a=8, c=8), "prune": True})
    assert made["impact"]["unstartable"]["count"] == 0
    told = {row["field"]: row["message"] for row in made["warnings"]}
    assert told[f"queues.{B}"] == "1 waiting workloads will have no queue"


@pytest.mark.parametrize(
    ("wish", "field", "message"),
    [
        ({"queues": {A: {"quota": [{"resource": GPU, "guaranteed": 64}]}}}, f"queues.{A}.quota[0].guaranteed", "64"),
        ({"queues": {A: {"quota": [{"resource": "gpu", "limit": 8}]}}}, f"queues.{A}.quota[0].resource",
         f"no node has gpu (did you mean {GPU}?)"),
        ({"queues": {A: {"quota": [{"resource": "nvidia.com-gpu", "limit": 8}]}}}, f"queues.{A}.quota[0].resource",
         f"no node has nvidia.com-gpu (did you mean {GPU}?)"),
        ({"queues": {"root.c": {}}}, "queues.root.c.namespaces", "nobody may use it"),
        ({"queues": {A: {"access": {"perUser": {"limits": {"gpu": 8}}}}}}, f"queues.{A}.access.perUser.limits.gpu",
         f"no node has gpu (did you mean {GPU}?)"),
        ({"queues": {A: {"access": {"maxPriority": "nosuch"}}}}, f"queues.{A}.access.maxPriority",
         "there is no PriorityClass nosuch"),
        ({"queues": {A: {"namespaces": ["taem-a"]}}}, f"queues.{A}.namespaces[0]", "taem-a"),
        ({"flavors": [{"name": "h", "nodeLabels": {"gpu": "h"}}]}, "flavors[0].nodeLabels", "no node has these labels"),
        ({"flavors": [{"name": "r0", "nodeLabels": {RACK: "r0"}}]}, "flavors", "2 of 4 nodes belong to no flavor, n2"),
        ({"topology": {"levels": ["example.com/row", RACK]}}, "topology.levels[0]", "the label example.com/row"),
        (
            {
                "queues": {A: {"quota": [{"flavor": "r0", "resource": "tpu", "limit": 8}]}},
                "flavors": [{"name": "r0", "nodeLabels": {RACK: "r0"}}, {"name": "any"}],
            },
            f"queues.{A}.quota[0].resource",
            "no node has tpu",
        ),
        (
            {
                "queues": {A: {"quota": [{"flavor": "h10", "resource": GPU, "limit": 8}]}},
                "flavors": [{"name": "h100"}],
            },
            f"queues.{A}.quota[0].flavor",
            "flavor h10 is not declared (did you mean h100?)",
        ),
    ],
)  # fmt: skip
async def test_what_is_most_likely_a_mistake_is_warned_about(
    api: Api, author: Author, wish: dict[str, Any], field: str, message: str
) -> None:
    await decided(author, tree(a=8), job("a1", A, 8))
    made = await plan(api, {**KIND, **wish})
    found = {row["field"]: f"{row['message']} ({row['hint']})" for row in made["warnings"]}
    assert message in found[field]


@pytest.mark.parametrize(
    ("gpus", "told"), [(8, []), (7, ["32 gpu are guaranteed in all, and the nodes have 31"])]
)
async def test_a_device_that_died_under_work_is_warned_about_as_the_decision_counts_it(
    api: Api, author: Author, gpus: int, told: list[str]
) -> None:
    """Live capacity has what is in use still."""
    await decided(author, tree(a=32), job("a1", A, 8), runs=(job("r1", A, gpus),), dead=1)
    wish = {"namespaces": ["team-a"], "quota": [{"resource": GPU, "guaranteed": 32}]}
    made = await plan(api, {**KIND, "queues": {A: wish}})
    assert [row["message"] for row in made["warnings"]] == told


async def test_what_was_so_before_is_not_warned_about(api: Api, author: Author) -> None:
    odd = {"namespaces": ["team-a"], "quota": [{"resource": "gpu", "limit": 8}]}
    await decided(author, {**KIND, "queues": {A: odd}}, job("a1", A, 8))
    assert (await plan(api, {**KIND, "queues": {A: {**odd, "weight": 2}}}))["warnings"] == []


# Who may

USERS = Table(
    {
        "root": frozenset({EVERYTHING}),
        "alice": frozenset({administering(A), reading("team-a")}),
        "eve": frozenset({reading("team-b")}),
    }
)


async def test_who_administers_a_subtree_changes_that_alone(shared: Api, author: Author) -> None:
    await author.tree(tree(a=8, b=8))
    own = {**tree(a=16), "root": A}
    made = await plan(shared, own, user="alice")
    for user, document in (("alice", tree(a=16)), ("alice", {**tree(b=16), "root": B}), ("eve", own)):
        sent = await shared.post(PATH, json=document, headers={"user": user})
        assert "queues.queuer.dev" in problem_of(sent, "forbidden")["detail"]
        sent = await shared.put("/api/v1/queue-tree", json=document, headers={"user": user, "If-Match": "*"})
        problem_of(sent, "forbidden")
    address = f"{PATH}/{made['id']}"
    for verb in ("", ":apply", ":discard"):
        method = "POST" if verb else "GET"
        problem_of(
            await shared.request(method, address + verb, headers={"user": "eve", "Idempotency-Key": "e"}),
            "forbidden",
        )
    done = await shared.post(f"{address}:apply", headers={"user": "alice", "Idempotency-Key": "a"})
    assert (done.json()["state"], done.json()["actor"]) == ("applied", "alice")
    other = await plan(shared, tree(b=16), user="root")
    own = {"user": "root", "Idempotency-Key": "r"}
    assert (await shared.post(f"{PATH}/{other['id']}:apply", headers=own)).status_code == 200
    problem_of(await shared.post(PATH, json={"revert": 3}, headers={"user": "alice"}), "forbidden")
    listed = [
        await shared.get(PATH, params={"root": A}, headers={"user": user}) for user in ("alice", "root")
    ]
    assert [[item["revision"] for item in page.json()["items"]] for page in listed] == [[2, 1], [2, 1]]
    problem_of(await shared.get(PATH, headers={"user": "alice"}), "forbidden")


async def test_everybody_reads_one_change_without_people_and_jobs(shared: Api, author: Author) -> None:
    """A tenant follows a link to it: what was changed, by whom and why is told of a queue that everybody sees."""
    await decided(author, tree(a=8, b=8), job("a1", A, 8), job("a2", A, 8))
    document = tree(a=16)
    document["queues"][A]["access"] = {"users": ["carol"], "perUser": {"limits": {GPU: 16}, "maxRunning": 6}}
    made = await plan(shared, document, user="root")
    own = {"user": "root", "Idempotency-Key": "r"}
    address = f"{PATH}/{made['id']}:apply"
    await shared.post(address, json={"reason": "a lease ends today"}, headers=own)
    for user, knows in (("eve", False), ("alice", True)):
        told = (await shared.get(f"{PATH}/2", headers={"user": user})).json()
        assert (told["actor"], told["reason"]) == ("root", "a lease ends today")
        text = told["changes"][0]["text"]
        assert "limit 8 -> 16" in text
        assert f"access perUser limits {GPU} none -> 16, access perUser maxRunning none -> 6" in text
        assert ("carol" in str(told), told["impact"] is not None) == (knows, knows)


async def test_jobs_of_others_are_counted_and_not_named(shared: Api, author: Author) -> None:
    await decided(
        author, tree(a=8), job("a1", A, 8), job("a2", A, 4), replace(job("x2", A, 4), namespace="secret")
    )
    made = await plan(shared, {**tree(a=16), "root": A}, user="alice")
    for answer in (made, (await shared.get(f"{PATH}/{made['id']}", headers={"user": "alice"})).json()):
        assert answer["impact"]["starts"]["count"] == 2
        assert [each["uid"] for each in answer["impact"]["starts"]["jobs"]] == ["a2"]
        assert "secret" not in str(answer)
    seen = (await shared.get(f"{PATH}/{made['id']}", headers={"user": "root"})).json()
    assert [each["uid"] for each in seen["impact"]["starts"]["jobs"]] == ["a2", "x2"]


async def test_who_would_be_evicted_is_told_beside_who_would_start(shared: Api, author: Author) -> None:
    def guaranteed(gpus: int) -> dict[str, Any]:
        quota = [{"resource": GPU, "guaranteed": gpus}]
        return {A: {"namespaces": ["team-a"], "quota": quota}}

    runs = tuple(job(f"b{i}", B, 8) for i in range(4))
    other = {B: {"namespaces": ["team-b"]}}
    await decided(author, {**KIND, "queues": {**guaranteed(0), **other}}, job("a1", A, 8), runs=runs)
    made = await plan(shared, {**KIND, "root": A, "queues": guaranteed(8)}, user="alice")
    assert [each["uid"] for each in made["impact"]["starts"]["jobs"]] == ["a1"]
    evicted = made["impact"]["evicted"]
    assert (evicted["count"], evicted["amounts"][GPU], evicted["jobs"]) == (1, "8", [])

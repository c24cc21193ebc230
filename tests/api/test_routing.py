"""Where a job would go is told without a job: by which rules, whether it may, and what is asked of it there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.app import create_app
from queuer.api.identity.rights import administering, reading
from tests.api.cli import run
from tests.api.identity import Api, Table, client_of, local
from tests.api.problems import problem_of
from tests.api.rows import A, Author, B

EVERYONES = reading()
TREE = {
    "apiVersion": "queuer.dev/v1",
    "kind": "QueueTree",
    "queues": {
        "root": {
            "namespaces": ["ns"],
            "placement": [{"user": "eve", "queue": A}, {"queue": "root.research"}],
        },
        "root.research": {
            "placement": [
                {"group": "ml", "queue": A},
                {"namespace": "ns", "queue": B},
                {"labels": {"app": "night"}, "queue": A},
            ]
        },
        A: {"access": {"groups": ["ml"], "maxRuntime": "2h"}},
        B: {"state": "held"},
    },
}


@pytest_asyncio.fixture
async def asked(engine: AsyncEngine, database_url: str, author: Author) -> AsyncIterator[Api]:
    """An API with this tree, asked by bob."""
    await author.tree(TREE)
    users = Table(
        {"bob": frozenset(), "lead": frozenset({administering("root")}), "watch": frozenset({EVERYONES})}
    )
    app = create_app(engine, local(database_url), users)
    base = "http://127.0.0.1:8787/api/v1/"
    async with client_of(app, base_url=base, headers={"user": "bob"}) as client:
        yield client


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("namespace=ns", {"queue": B, "by": "rule", "user": "bob", "may": True, "state": "held", "usable": [B]}),
        ("namespace=ns&user=carol&group=ml", {"queue": A, "may": True, "access": {
            "maxRuntime": "2h", "maxPending": 5000}, "usable": [A, B]}),
        ("namespace=ns&user=eve", {"queue": A, "may": False, "steps": [
            {"queue": "root", "rule": {"queue": A}}], "reason":
            f"user eve may not use queue {A}: it is for others; eve may use {B} from here"}),
        (f"namespace=ns&queue={A}", {"queue": A, "by": "label", "may": False, "steps": []}),
        ("namespace=other", {"queue": "root.research", "may": False, "usable": []}),
        ("namespace=other&labels=tier=x,app=night", {"queue": A, "may": False, "usable": []}),
        ("namespace=ns&queue=root.gone", {"queue": "root.gone", "by": "label", "may": False, "state": None}),
    ],
)  # fmt: skip
async def test_where_a_job_would_go(asked: Api, query: str, expected: dict[str, Any]) -> None:
    """Others are asked about by who sees the jobs of all."""
    who = "watch" if "user=" in query else "bob"
    found = (await asked.get(f"routing?{query}", headers={"user": who})).json()
    assert {key: found[key] for key in expected} == expected
    assert found["may"] is not bool(found["reason"])


async def test_who_administers_the_queues_is_told_whom_they_name(asked: Api) -> None:
    """M7: access lists and rules name people to administrators alone."""
    found = (await asked.get("routing?namespace=ns&user=eve", headers={"user": "lead"})).json()
    assert found["steps"] == [{"queue": "root", "rule": {"user": "eve", "queue": A}}]
    assert found["access"]["groups"] == ["ml"]
    assert "it is for group ml" in found["reason"]


@pytest.mark.parametrize("query", ["user=eve", "user=bob&group=ml", "group=ml"])
async def test_nobody_finds_out_what_others_may_use(asked: Api, query: str) -> None:
    """Asked name by name, the answer would be the list of who may use a queue."""
    problem_of(await asked.get(f"routing?namespace=ns&{query}"), "forbidden")
    for who in ("lead", "watch"):
        answer = await asked.get(f"routing?namespace=ns&{query}", headers={"user": who})
        assert answer.status_code == 200, answer.text
    assert (await asked.get("routing?namespace=ns&user=bob")).status_code == 200


@pytest.mark.parametrize("labels", ["app==night", "tier=x, app=night", " app = night "])
async def test_labels_are_read_as_kubectl_reads_them(asked: Api, labels: str) -> None:
    """A label that is read otherwise matches no rule, and the answer is another queue."""
    found = await asked.get("routing", params={"namespace": "other", "labels": labels})
    assert found.json()["queue"] == A


@pytest.mark.parametrize("labels", ["app", "app!=night", "tier=x,,app=night", "=night", "app=night=day"])
async def test_what_is_no_label_is_refused(asked: Api, labels: str) -> None:
    found = await asked.get("routing", params={"namespace": "other", "labels": labels})
    error = problem_of(found, "invalid_input")["errors"][0]
    assert (error["field"], "is no key=value" in error["message"]) == ("labels", True)


async def test_a_namespace_is_needed(asked: Api) -> None:
    problem = problem_of(await asked.get("routing"), "invalid_input")
    assert problem["errors"][0]["field"] == "namespace"


async def test_the_tree_keeps_its_rules_and_hides_whom_they_name(asked: Api) -> None:
    queues = (await asked.get("queue-tree")).json()["queues"]
    assert queues["root"]["placement"] == [{"queue": "root.research"}]
    assert queues["root.research"]["placement"] == [
        {"namespace": "ns", "queue": B},
        {"labels": {"app": "night"}, "queue": A},
    ]


async def test_the_command_line_says_it_in_words(asked: Api) -> None:
    said = (await run(asked, "queue", "where", "-n", "ns", "--user", "eve", user="watch")).out
    assert f"{A}  for eve in ns" in said
    assert "by rule     " in said
    assert "no: user eve may not use queue" in said

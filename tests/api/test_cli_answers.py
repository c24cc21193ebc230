"""The command line against the real API: what it prints for programs, and that no text of a job acts on a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml
from jsonschema import Draft202012Validator
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.workload import State
from queuer.store import rollup
from queuer.store.engine import begin
from tests.api.cli import Wire, run
from tests.api.identity import Api, client_of, open_to_all
from tests.api.rows import A, Author
from tests.api.test_queue_figures import decided
from tests.store.support import workload

MARKUP, ANSI, QUIET = "<img src=x onerror=alert(1)>", "\x1b[31mred\x1b[0m\r[bold]b\u202e", "runs"
SINGLE = [
    ["export"],
    ["cycles", "show", "1"],
    ["cycles", "replay", "1"],
    ["queue", "show", A],
    ["queue", "where", A, "-n", "team-a"],
    ["status"],
    ["wait", QUIET, "--for=running"],
    ["whoami"],
    ["why", MARKUP],
    ["why", QUIET],
]
LISTS = [
    ["ahead", ANSI],
    ["audit"],
    ["cycles"],
    ["events"],
    ["events", ANSI],
    ["jobs"],
    ["jobs", "-a"],
    ["jobs", "--by", "queue"],
    ["queue", "history", A],
    ["queue", "ls"],
    ["queue", "pending", A],
    ["queue", "tree"],
    ["share"],
    ["why", "--all"],
]


@pytest_asyncio.fixture
async def api(engine: AsyncEngine, database_url: str) -> AsyncIterator[Api]:
    """A client of an app that takes the controller of these long tests for alive."""
    async with client_of(open_to_all(engine, database_url, stale_after=600)) as client:
        yield client


@pytest_asyncio.fixture
async def wire(api: Api, author: Author) -> Wire:
    """An API that knows two hostile jobs that wait, and one that runs."""
    await author.tree()
    hostile = [
        workload(f"u{n}", name=name, queue=A, user=name, pods=4, gpus=8)
        for n, name in enumerate((MARKUP, ANSI))
    ]
    runs = workload("runs", queue=A)
    await decided(author, *hostile, runs=[runs])
    await author.step("runs", State.RUNNING)
    now = time.time()
    for seconds in (120, 60, 0):
        async with begin(author.engine) as connection:
            await rollup.record(connection, author.epoch, at=now - seconds)
    return Wire(api)


async def test_json_is_what_the_document_of_the_api_promises(wire: Wire, api: Api) -> None:
    """And YAML says the same."""
    document = (await api.get("/api/v1/openapi.json")).json()
    for arguments in [*SINGLE, *LISTS]:
        done = await run(wire, *arguments, "-o", "json")
        assert (done.code, done.err) == (0, ""), arguments
        told, schema = json.loads(done.out), _schema(document, *wire.last)
        Draft202012Validator({**schema, "components": document["components"]}).validate(told)
        assert yaml.safe_load((await run(wire, *arguments, "-o", "yaml")).out).keys() == told.keys(), (
            arguments
        )


def _schema(document: Any, method: str, path: str) -> dict[str, Any]:
    """Of the answer to a request: the most literal path that matches."""
    fits = [t for t in document["paths"] if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", t), path)]
    content = document["paths"][min(fits, key=lambda t: t.count("{"))][method]["responses"]["200"]["content"]
    schema: dict[str, Any] = content["application/json"]["schema"]
    return schema


async def test_a_list_is_told_line_by_line(wire: Wire) -> None:
    """As many names, JSON lines and CSV rows as there are entries; every CSV row has all columns."""
    for arguments in LISTS:
        names = (await run(wire, *arguments, "-o", "name")).out.splitlines()
        lines = (await run(wire, *arguments, "-o", "jsonl")).out.splitlines()
        head, *rows = csv.reader(io.StringIO((await run(wire, *arguments, "-o", "csv")).out))
        assert len(names) == len(lines) == len(rows) > 0, arguments
        assert all(isinstance(json.loads(line), dict) for line in lines)
        assert {len(row) for row in rows} <= {len(head)}, arguments
        bare = await run(wire, *arguments, "-o", "csv", "--no-headers")
        assert len(list(csv.reader(io.StringIO(bare.out)))) == len(rows), arguments


async def test_no_text_of_a_job_acts_on_a_terminal(wire: Wire) -> None:
    """In any verb and any format, on stdout and on stderr."""
    for arguments in [*SINGLE, *LISTS]:
        for form in ("table", "wide", "json", "yaml", "name", "jsonl", "csv"):
            done = await run(wire, *arguments, "-o", form)
            refused = arguments in SINGLE and form == "csv"
            refused |= arguments == ["export"] and form in ("table", "wide")
            assert done.code == (2 if refused else 0), (arguments, form, done.err)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.out + done.err), (
                arguments,
                form,
            )


@pytest.mark.parametrize(
    ("asked", "said"), [("\x1b[31mnobody\r\u202e", "no job [31mnobody"), ("job/nobody", "no job/nobody")]
)
async def test_an_unknown_job_is_named_as_it_was_given(wire: Wire, asked: str, said: str) -> None:
    """Guards against words that act on a terminal, and against "no job job/nobody"."""
    done = await run(wire, "why", asked)
    assert (done.code, done.err.partition(" is known")[0]) == (3, f"queuer: {said}")


async def test_markup_of_a_name_is_shown_as_it_is(wire: Wire) -> None:
    done = await run(wire, "jobs")
    assert f"job/{MARKUP}" in done.out
    assert "job/[31mred[0m[bold]b " in done.out


async def test_jobs_by_queue_are_sums(wire: Wire) -> None:
    rows = [line.split() for line in (await run(wire, "jobs", "--by", "queue")).out.splitlines()]
    assert rows[0] == ["QUEUE", "JOBS", "ASKS", "OLDEST"]
    listed = (await run(wire, "jobs", "--no-headers")).out.splitlines()
    assert sum(int(row[1]) for row in rows[1:]) == len(listed) > 0


async def test_what_needs_no_cycle_says_so_on_an_empty_database(api: Api, author: Author) -> None:
    """A person gets a sentence on stderr, a program an empty list."""
    await author.tree()
    wire = Wire(api)
    for arguments in (["jobs"], ["cycles"], ["share"], ["why", "--all"], ["queue", "pending", A]):
        done = await run(wire, *arguments)
        assert (done.code, done.out) == (0, ""), arguments
        assert done.err
    assert (await run(wire, "status")).code == 0


async def test_colour_is_as_it_was_asked_for(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" in (await run(wire, "jobs", "--color", "always")).out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" not in (await run(wire, "jobs", "--color", "never")).out


async def test_the_line_before_a_job_is_summed_up(wire: Wire) -> None:
    done = await run(wire, "ahead", ANSI)
    assert "is number 2 in root.research.team-a, as of cycle 1: 1 ahead, asking for 32 gpu" in done.out
    assert f"job/{MARKUP}" in done.out
    done = await run(wire, "ahead", QUIET)
    assert "job/runs is Running: it waits for nothing" in done.out

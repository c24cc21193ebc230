"""Verbs that command jobs: what is meant is printed before it is asked, and the exit code says how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from queuer.cli.failures import Exit
from tests.cli import Done, queuer


def _command(outcome: str | None, message: str = "") -> dict[str, Any]:
    return {"command": {"id": 7, "outcome": outcome, "message": message}, "refused": None}


def run(ends: Mapping[str, Any], *arguments: str) -> tuple[Done, list[tuple[str, dict[str, Any]]]]:
    """`queuer ARGUMENTS` with an API whose commands on these jobs end so; and what it was sent."""
    sent: list[tuple[str, dict[str, Any]]] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            asked = request.url.params["name"]
            name = next((name for name in ends if asked in ("", "*", name)), asked)
            job = {"uid": f"u-{name}", "kind": "Job", "namespace": "team-a", "name": name, "state": "Running",
                   "queue": "root.a", "deleted": None}  # fmt: skip
            return httpx2.Response(200, json={"items": [job] if name in ends else [], "next": None})
        body = json.loads(request.content)
        sent.append((request.url.path, body))
        items = [{"uid": uid, **ends[uid.removeprefix("u-")]} for uid in body["uids"]]
        return httpx2.Response(200, json={"items": items})

    return queuer(httpx2.MockTransport(handle), *arguments), sent


def test_the_plan_is_printed_then_all_are_asked_for_in_one_request() -> None:
    ends = {"a": _command("done", "evicted"), "b": _command("done", "evicted")}
    done, sent = run(ends, "evict", "job/a", "b", "a", "--hold", "--reason", "maintenance", "-y")
    assert done.code == Exit.OK, done.err
    assert sent == [
        ("/api/v1/workloads:evict", {"reason": "maintenance", "hold": True, "uids": ["u-a", "u-b"]})
    ]
    assert "evict and hold: job/a -n team-a, Running in root.a" in done.err
    assert "job/b -n team-a: evicted" in done.out


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (_command("refused", "only an administrator"), Exit.CONFLICT),
        (_command("gone", "it has ended"), Exit.NOT_FOUND),
        (_command(None), Exit.TIMEOUT),
        ({"command": None, "refused": {"code": "forbidden", "detail": "no"}}, Exit.FORBIDDEN),
    ],
)
def test_the_exit_code_is_that_of_the_first_that_was_not_done(end: dict[str, Any], code: Exit) -> None:
    done, _ = run({"a": _command("done", "held"), "b": end}, "hold", "a", "b", "-y")
    assert done.code == code


@pytest.mark.parametrize("arguments", [("evict", "-y"), ("hold", "-y"), ("why",), ("wait",)])
@pytest.mark.parametrize("name", ["*", "job/*", "job/", ""])
def test_no_verb_takes_a_pattern_for_a_job(arguments: tuple[str, ...], name: str) -> None:
    """The list finds any job by it, and the verb would act on the first."""
    done, sent = run({"a": _command("done", "evicted")}, *arguments, name)
    assert (done.code, done.out, sent) == (Exit.USAGE, "", [])
    assert f"{name!r} names no job" in done.err


@pytest.mark.parametrize(("typed", "value"), [("own", None), ("-5", -5), ("500", 500), ("high", "high")])
def test_a_priority_is_a_number_a_class_or_the_jobs_own(typed: str, value: object) -> None:
    done, sent = run({"a": _command("done", "set")}, "prioritise", "a", "--priority", typed, "-y")
    assert (done.code, sent[0][1]["priority"]) == (Exit.OK, value)

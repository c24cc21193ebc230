"""Verbs that command jobs: what is meant is printed before it is asked, and the exit code says how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from queuer.cli import main
from queuer.cli.client import Client
from queuer.cli.failures import Exit

SENT = list[tuple[str, dict[str, Any]]]


def _job(name: str) -> dict[str, Any]:
    return {"uid": f"u-{name}", "kind": "Job", "namespace": "team-a", "name": name, "state": "Running",
            "queue": "root.a", "deleted": None}  # fmt: skip


def _command(outcome: str | None, message: str = "") -> dict[str, Any]:
    return {"command": {"id": 7, "outcome": outcome, "message": message}, "refused": None}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Any]], SENT]:
    """An API that knows jobs `a` and `b` and ends commands as told; keeps what it is sent."""

    def start(ends: Mapping[str, Any]) -> SENT:
        sent: SENT = []

        def handle(request: httpx2.Request) -> httpx2.Response:
            if request.method == "GET":
                name = request.url.params["name"]
                return httpx2.Response(
                    200, json={"items": [_job(name)] if name in ends else [], "next": None}
                )
            body = json.loads(request.content)
            sent.append((request.url.path, body))
            items = [{"uid": uid, **ends[uid.removeprefix("u-")]} for uid in body["uids"]]
            return httpx2.Response(200, json={"items": items})

        made = Client("http://queuer.test", transport=httpx2.MockTransport(handle))
        monkeypatch.setattr(Client, "from_env", lambda: made)
        return sent

    return start


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main.build(arguments), list(arguments))


def test_the_plan_is_printed_then_all_are_asked_for_in_one_request(
    server: Callable[[Mapping[str, Any]], SENT],
) -> None:
    sent = server({"a": _command("done", "evicted"), "b": _command("done", "evicted")})
    found = _run("evict", "job/a", "b", "a", "--hold", "--reason", "maintenance", "-y")
    assert found.exit_code == Exit.OK, found.output
    assert sent == [
        ("/api/v1/workloads:evict", {"reason": "maintenance", "hold": True, "uids": ["u-a", "u-b"]})
    ]
    assert "evict and hold: job/a -n team-a, Running in root.a" in found.stderr
    assert "job/b -n team-a: evicted" in found.stdout


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (_command("refused", "only an administrator"), Exit.CONFLICT),
        (_command("gone", "it has ended"), Exit.NOT_FOUND),
        (_command(None), Exit.TIMEOUT),
        ({"command": None, "refused": {"code": "forbidden", "detail": "no"}}, Exit.FORBIDDEN),
    ],
)
def test_the_exit_code_is_that_of_the_first_that_was_not_done(
    server: Callable[[Mapping[str, Any]], SENT], end: dict[str, Any], code: Exit
) -> None:
    server({"a": _command("done", "held"), "b": end})
    assert _run("hold", "a", "b", "-y").exit_code == code


@pytest.mark.parametrize(("typed", "value"), [("own", None), ("-5", -5), ("500", 500), ("high", "high")])
def test_a_priority_is_a_number_a_class_or_the_jobs_own(
    server: Callable[[Mapping[str, Any]], SENT], typed: str, value: object
) -> None:
    sent = server({"a": _command("done", "priority 0 -> 1")})
    assert _run("prioritise", "a", "--priority", typed, "-y").exit_code == Exit.OK
    assert sent[0][1]["priority"] == value


def test_a_state_is_one_request_with_its_reason_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue's other fields are not sent: they would revert an edit made meanwhile."""
    sent: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(500, json={"detail": "enough"})

    made = Client("http://queuer.test", transport=httpx2.MockTransport(handle))
    monkeypatch.setattr(Client, "from_env", lambda: made)
    _run("queue", "drain", "root.a", "-y", "--reason", "upgrade")
    (request,) = sent
    assert (request.method, request.url.path) == ("POST", "/api/v1/queues/root.a:drain")
    assert json.loads(request.content) == {"reason": "upgrade"}
    assert request.headers["idempotency-key"]

"""`queuer login` keeps a valid token for one server, where nobody else reads it; `queuer open` names a page."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from queuer.cli import main
from queuer.cli.client import Client
from queuer.cli.failures import Exit
from queuer.cli.login import page_of
from queuer.cli.token import find_login

HERE = "https://queuer.example"


def _answer(request: httpx2.Request) -> httpx2.Response:
    if request.headers.get("Authorization") != "Bearer good":
        problem = {"detail": "this token is not known", "errors": []}
        return httpx2.Response(401, json=problem)
    return httpx2.Response(200, json={"name": "alice"})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """The verbs with a home of their own, before a server that knows the token `good`."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("QUEUER_API", HERE)
    monkeypatch.delenv("QUEUER_TOKEN", raising=False)
    real = Client.__init__

    def made(self: Client, url: str, **more: Any) -> None:
        real(self, url, **{**more, "transport": httpx2.MockTransport(_answer)})

    monkeypatch.setattr(Client, "__init__", made)

    def invoke(*arguments: str, token: str = "") -> Result:
        return CliRunner().invoke(main.build(arguments), list(arguments), input=token)

    return invoke


def test_a_valid_token_is_kept_for_its_server_alone_and_forgotten(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    found = run("login", token="good\n")
    assert (found.exit_code, "logged in" in found.stderr, "alice" in found.stderr) == (0, True, True)
    file = tmp_path / "queuer" / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {HERE: "good"}
    where = {"XDG_CONFIG_HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    assert find_login({**where, "QUEUER_API": f"{HERE}/"}).token == "good"
    assert find_login({**where, "QUEUER_API": "https://other.example"}).token == ""
    assert find_login({**where, "QUEUER_API": HERE, "QUEUER_TOKEN": "mine"}).token == "mine"
    assert "is forgotten" in run("logout").stderr
    assert find_login({**where, "QUEUER_API": HERE}).token == ""
    assert "no token is kept" in run("logout").stderr


@pytest.mark.parametrize("token", ["bad\n", "", "two words\n"])
def test_a_token_that_does_not_work_is_not_kept(
    run: Callable[..., Result], tmp_path: Path, token: str
) -> None:
    found = run("login", token=token)
    assert found.exception is not None
    assert "kubectl create token" in str(found.exception)
    assert not (tmp_path / "queuer").exists()


def test_a_token_does_not_travel_open(run: Callable[..., Result]) -> None:
    found = run("login", "http://queuer.example", token="good\n")
    assert "plain http" in str(found.exception)
    assert getattr(found.exception, "exit_code", None) is Exit.USAGE


@pytest.mark.parametrize(
    ("ref", "page"),
    [
        (None, "/"),
        ("root", "/queues/root"),
        ("root.research.team-a", "/queues/root.research.team-a"),
        ("48213", "/cycles/48213"),
        ("job/train", "/jobs/u1"),
    ],
)
def test_a_page_is_named_by_what_it_is_about(ref: str | None, page: str) -> None:
    row = {
        "uid": "u1",
        "kind": "Job",
        "namespace": "team-a",
        "name": "train",
        "state": "Queued",
        "deleted": None,
    }
    answer = httpx2.Response(200, json={"items": [row], "next": None})
    with Client("http://queuer.test", transport=httpx2.MockTransport(lambda _: answer)) as client:
        assert page_of(client, ref, None) == page

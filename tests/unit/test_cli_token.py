"""Where the command line's token comes from, and to whom it is not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from queuer.cli.client import Client
from queuer.cli.failures import CommandFailed, Exit
from queuer.cli.token import Login, find_login

HERE = "http://127.0.0.1:8787"


def kubeconfig(path: Path, **user: Any) -> str:
    """A kubeconfig whose current user is described so."""
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "other", "user": {"token": "wrong"}}, {"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_token_that_is_given_wins(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path / "config", token="of-the-cluster")
    found = find_login({"QUEUER_TOKEN": " mine\n", "QUEUER_API": "http://far.example", "KUBECONFIG": config})
    assert found == Login(token="mine")


@pytest.mark.parametrize("url", [HERE, "http://localhost:1", "https://queuer.example"])
def test_the_kubeconfig_speaks_for_its_current_user(tmp_path: Path, url: str) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    for user, token in (
        ({"token": "plain"}, "plain"),
        ({"tokenFile": "token", "token": "plain"}, "from-a-file"),
    ):
        config = kubeconfig(tmp_path / "config", **user)
        assert find_login({"QUEUER_API": url, "KUBECONFIG": config}).token == token


def test_of_several_files_the_first_that_says_a_thing_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first", kubeconfig(tmp_path / "second", token="second")
    first.write_text("users: [{name: u, user: {token: first}}]")
    given = f"{tmp_path / 'missing'}:{first}:{second}"
    assert find_login({"QUEUER_API": HERE, "KUBECONFIG": given}).token == "first"


@pytest.mark.parametrize(
    ("url", "said"), [("", "only to a server that QUEUER_API names"), ("http://far.example", "plain http")]
)
def test_the_clusters_token_is_not_shown_to_just_anyone(tmp_path: Path, url: str, said: str) -> None:
    config = kubeconfig(tmp_path / "config", token="of-the-cluster")
    found = find_login({"QUEUER_API": url, "KUBECONFIG": config})
    assert found.token == ""
    assert said in found.missing


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"exec": {"command": "cloud-login"}}, "logs in by cloud-login"),
        ({"client-certificate": "c"}, "has no token"),
        ({"tokenFile": "nowhere"}, "cannot be read"),
        ({"token": "two lines\nof text"}, "is no token"),
    ],
)
def test_a_login_that_we_cannot_use_is_said(tmp_path: Path, user: dict[str, Any], said: str) -> None:
    found = find_login({"QUEUER_API": HERE, "KUBECONFIG": kubeconfig(tmp_path / "config", **user)})
    assert found.token == ""
    assert said in found.missing


@pytest.mark.parametrize("text", ["", "[]", "{", "users: 7\ncontexts: [x]\ncurrent-context: [1]", "\0"])
def test_no_kubeconfig_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    found = find_login({"QUEUER_API": HERE, "KUBECONFIG": str(tmp_path / "config")})
    assert found == Login(missing="no kubeconfig names a current user")


def test_the_token_is_sent_and_a_refusal_says_what_to_do_next() -> None:
    seen: list[str | None] = []

    def api(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("authorization"))
        return httpx2.Response(401 if len(seen) == 1 else 403, json={"detail": "no"})

    login = Login(token="mine")
    with (
        Client(HERE, login=login, transport=httpx2.MockTransport(api)) as client,
        pytest.raises(CommandFailed) as unknown,
    ):
        client.get("/queues")
    nobody = Login(missing="no kubeconfig")
    with (
        Client(HERE, login=nobody, transport=httpx2.MockTransport(api)) as client,
        pytest.raises(CommandFailed) as forbidden,
    ):
        client.get("/queues")
    assert seen == ["Bearer mine", None]
    assert (unknown.value.exit_code, forbidden.value.exit_code) == (Exit.FORBIDDEN, Exit.FORBIDDEN)
    assert "kubectl create token" in unknown.value.hint
    assert forbidden.value.next == "queuer whoami"

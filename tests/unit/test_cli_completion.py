"""Completion as shells ask for it: verbs, flags, queues and jobs; from what is kept; silent where nobody answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from queuer.cli.completion import KEPT_SECONDS
from queuer.cli.main import finished
from tests.cli import serving

ROOT = Path(__file__).resolve().parents[2]
JOBS = [("team-a", "llama"), ("team-a", "eval"), ("team-b", "bert"), ("team-b", "$(touch x)")]
Ask = Callable[..., str]


@dataclass(frozen=True)
class Api:
    """Knows two queues and a few jobs. `asked`: the paths that it was asked for."""

    port: int
    asked: list[str]


@pytest.fixture
def api() -> Iterator[Api]:
    """An API with the two lists that names come from."""
    asked = list[str]()

    def answer(address: str) -> object:
        url = urlsplit(address)
        asked.append(url.path)
        spaces = parse_qs(url.query).get("namespace", ["team-a", "team-b"])
        lists = {
            "/api/v1/queues": [{"path": path} for path in ("root", "root.a", "root.b")],
            "/api/v1/workloads": [{"kind": "Job", "name": name} for space, name in JOBS if space in spaces],
        }
        return {"items": lists[url.path]}

    with serving(answer) as port:
        yield Api(port, asked)


@pytest.fixture
def environment(api: Api, tmp_path: Path) -> dict[str, str]:
    """A shell in which `queuer` is this tree's, and talks to that API."""
    program = tmp_path / "bin" / "queuer"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m queuer "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "QUEUER_API": f"http://127.0.0.1:{api.port}",
    }


def out_of(environment: dict[str, str], *command: str, **more: str) -> list[str]:
    """Lines of a command that succeeds and complains of nothing."""
    done = subprocess.run(
        command, env=environment | more, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def bash(environment: dict[str, str], *words: str) -> list[str]:
    """Bash's offers for the last word."""
    script = (
        'source <(queuer completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_queuer_completion queuer; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return out_of(environment, "bash", "--norc", "-c", script, "bash", "queuer", *words)


def fish(environment: dict[str, str], line: str) -> list[str]:
    """Fish's offers."""
    found = out_of(
        environment, "queuer", _QUEUER_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS=line,
    )  # fmt: skip
    return [line.partition("\t")[0] for line in found if line]


def zsh(environment: dict[str, str], line: str) -> str:
    """Zsh's text to evaluate."""
    more = {"_QUEUER_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    return "\n".join(out_of(environment, "queuer", **more))


def kubectl(environment: dict[str, str], *words: str) -> list[str]:
    """Kubectl's offers."""
    code = "from queuer.cli.completion import kubectl; kubectl()"
    return out_of(environment, sys.executable, "-c", code, *words)


def test_bash_is_offered_verbs_flags_queues_and_jobs(environment: dict[str, str], api: Api) -> None:
    assert bash(environment, "stat") == ["status"]
    assert bash(environment, "queue", "sh") == ["show"]
    assert bash(environment, "jobs", "--no-") == ["--no-headers"]
    assert bash(environment, "queue", "show", "root.") == ["root.a", "root.b"]
    assert bash(environment, "jobs", "-q", "root.b") == ["root.b"]
    assert api.asked == ["/api/v1/queues"]  # what was asked lately is kept
    assert bash(environment, "why", "") == ["bert", "eval", "llama"]
    assert bash(environment, "why", "-n", "team-a", "job/") == ["job/eval", "job/llama"]


def test_fish_zsh_and_kubectl_are_offered_the_same(environment: dict[str, str]) -> None:
    assert fish(environment, "queuer queue show root.") == ["root.a", "root.b"]
    assert fish(environment, "queuer why l") == ["llama"]
    assert "status" in fish(environment, "queuer ")
    assert zsh(environment, "queuer queue show root.") == '_arguments \'*: :(("root.a"\n"root.b"))\''
    assert kubectl(environment, "queue", "show", "root.") == ["root.a", "root.b", ":4"]
    assert [line.partition("\t")[0] for line in kubectl(environment, "queue", "")][-1] == ":4"
    assert kubectl(environment, "why", "b") == ["bert", ":4"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(environment: dict[str, str], shell: str) -> None:
    script = "\n".join(out_of(environment, "queuer", "completion", shell))
    assert f"complete_{shell}" in script


def test_a_server_that_is_away_offers_nothing_and_says_nothing(environment: dict[str, str]) -> None:
    away = environment | {"QUEUER_API": "http://127.0.0.1:1"}
    assert bash(away, "why", "l") == [""]
    assert fish(away, "queuer queue show ") == []
    assert kubectl(away, "queue", "show", "") == [":4"]


def test_what_is_kept_is_private_and_not_another_callers(environment: dict[str, str], api: Api) -> None:
    fish(environment, "queuer queue show ")
    fish(environment | {"QUEUER_TOKEN": "another"}, "queuer queue show ")
    assert len(api.asked) == 2
    kept = [*(Path(environment["HOME"]) / ".cache/queuer/names").iterdir()]
    assert len(kept) == 2
    assert {file.stat().st_mode & 0o077 for file in kept} == {0}


def test_what_is_kept_grows_old(environment: dict[str, str], api: Api) -> None:
    fish(environment, "queuer queue show ")
    (kept,) = (Path(environment["HOME"]) / ".cache/queuer/names").iterdir()
    os.utime(kept, (0, kept.stat().st_mtime - KEPT_SECONDS))
    assert fish(environment, "queuer queue show root.b") == ["root.b"]
    assert len(api.asked) == 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, None),
        ({"_QUEUER_COMPLETE": "complete_bash", "COMP_WORDS": "queuer why x", "COMP_CWORD": "2"}, ["why"]),
        ({"_QUEUER_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "queuer why x"}, ["why"]),
        ({"_QUEUER_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "queuer why "}, ["why"]),
        ({"_QUEUER_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "queuer why 'x"}, ["why"]),
        ({"_QUEUER_COMPLETE": "source_bash"}, []),
    ],
)
def test_the_verb_that_is_typed_is_found(asked: dict[str, str], words: list[str] | None) -> None:
    """Only its module is loaded."""
    assert finished(asked) == words

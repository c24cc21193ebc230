"""Shell completion: its script, the answers to kubectl, and the names of queues and live jobs that are offered.

The shells ask by running `queuer` with a variable set, and kubectl by `kubectl_complete-queuer` in its own protocol.
Only the module of the verb that is being typed is loaded then. A shell asks at every press of a key, so names of the
API are kept for half a minute and read without loading the HTTP client. After any error a shell is offered nothing,
and nothing is said.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from queuer.cli.client import Client, live_states
from queuer.cli.main import PROGRAM, VARIABLE, run
from queuer.cli.token import find_login
from queuer.domain.errors import QueuerError

KEPT_SECONDS = 30.0
ANSWER_SECONDS = 2.0
"""How long a shell waits for the API."""
MOST_JOBS = 1000
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")
"""What no shell takes for anything else than a word."""
_NO_FILES = ":4"
"""The last line of an answer to kubectl: nothing else is to be offered."""


class Shell(StrEnum):
    """Shells that completion is made for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print the script by which a shell completes verbs, flags, queues and jobs.

    Examples:

      source <(queuer completion bash)

      queuer completion fish > ~/.config/fish/completions/queuer.fish
    """
    os.environ[VARIABLE] = f"source_{shell}"
    run()


def kubectl() -> None:
    """Entry point of `kubectl_complete-queuer`, which kubectl runs for `kubectl queuer <TAB>`."""
    words = [PROGRAM, *sys.argv[1:]]
    os.environ |= {
        VARIABLE: "complete_fish",  # its answers are lines of a word and its help, as kubectl wants them
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": " ".join(map(shlex.quote, words[:-1])) + f" {_last(words)}",
    }
    sys.argv[1:] = []
    offered = io.StringIO()
    with redirect_stdout(offered), suppress(SystemExit):
        run()
    for line in [*filter(None, offered.getvalue().splitlines()), _NO_FILES]:
        typer.echo(line)


def _last(words: Sequence[str]) -> str:
    """The unfinished word; an empty one is told by the blank before it."""
    return shlex.quote(words[-1]) if len(words) > 1 and words[-1] else ""


# Names


def queue_paths(incomplete: str) -> list[str]:
    """Paths that begin so."""
    found = _kept("queues", lambda client: [queue["path"] for queue in client.get("/queues")["items"]])
    return [path for path in found if path.startswith(incomplete)]


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """Live jobs by NAME, and by KIND/NAME once there is a slash; of the namespace that was typed before."""
    space = context.params.get("namespace")

    def ask(client: Client) -> list[str]:
        page = client.get("/workloads", state=live_states(), namespace=space, limit=str(MOST_JOBS))
        return [f"{job['kind'].lower()}/{job['name']}" for job in page["items"]]

    found = _kept(f"jobs {space}", ask)
    if "/" not in incomplete:
        found = [name.partition("/")[2] for name in found]
    return sorted({name for name in found if name.startswith(incomplete)})


def _kept(what: str, ask: Callable[[Client], list[str]]) -> list[str]:
    """Names of the last half minute, else of now. Files are private, by server and token of the caller."""
    try:
        file = _directory() / _key(what)
        if file.is_file() and 0 <= time.time() - file.stat().st_mtime < KEPT_SECONDS:
            return [str(name) for name in json.loads(file.read_bytes())]
        with Client.from_env(timeout=ANSWER_SECONDS, quiet=True) as client:
            names = [name for name in ask(client) if _PLAIN.fullmatch(name)]
        _write(file, json.dumps(names))
    except (QueuerError, OSError, ValueError):
        return []
    return names


def _directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queuer" / "names"


def _key(what: str) -> str:
    asked = "\0".join((os.environ.get("QUEUER_API", ""), find_login(os.environ).token, what))
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def _write(file: Path, text: str) -> None:
    """Whole or not at all: another shell may read it at the same time."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as stream:  # made with mode 0600
        stream.write(text)
    Path(stream.name).replace(file)

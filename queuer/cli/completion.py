"""`queuer completion SHELL` prints what a shell needs; `kubectl_complete-queuer` answers kubectl in its own protocol.

The shells ask by running `queuer` with a variable set. Only the module of the verb that is being typed is loaded then.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from enum import StrEnum
from typing import Annotated

import typer

from queuer.cli.main import PROGRAM, VARIABLE, run

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

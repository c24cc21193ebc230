"""Arguments and options that several verbs take, with what a shell may complete them to, and what `-y` answers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from queuer.cli.completion import job_names, queue_paths
from queuer.cli.failures import CommandFailed, Misused

Job = Annotated[str, typer.Argument(help="NAME or KIND/NAME.", autocompletion=job_names)]
Jobs = Annotated[list[str], typer.Argument(help="NAME or KIND/NAME, one or more.", autocompletion=job_names)]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Only jobs of this namespace.")]
QueuePath = Annotated[str, typer.Argument(help="e.g. root.research.team-a", autocompletion=queue_paths)]
InQueue = Annotated[
    str | None,
    typer.Option("-q", "--queue", help="Only this queue and all below it.", autocompletion=queue_paths),
]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Go on, and print what changes.")]
Reason = Annotated[str, typer.Option(help="Why, for the audit.")]
ExitStatus = Annotated[
    bool,
    typer.Option(
        "--exit-status", help="Exit 10 WAIT, 11 CHANGE, 12 ESCALATE, 13 HELD; 0 when it waits for nothing."
    ),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Raise CommandFailed unless the person agrees, or has with `yes`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misused("there is no terminal to ask on", hint="add -y to do what is printed above")
    if not typer.confirm(question, err=True):
        raise CommandFailed("nothing was changed", hint="add -y to skip the question")

"""Asks before something is changed: on a terminal, unless `-y` has answered already."""

from __future__ import annotations

import sys

import typer

from queuer.cli.failures import CommandFailed, Misused


def confirm(question: str, *, yes: bool) -> None:
    """Raise CommandFailed unless the person agrees, or has with `yes`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misused("there is no terminal to ask on", hint="add -y to do what is printed above")
    if not typer.confirm(question, err=True):
        raise CommandFailed("nothing was changed", hint="add -y to skip the question")

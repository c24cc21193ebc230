"""The root of the command line: finds the module of a verb, turns errors into a sentence and an exit code.

Only the module of the verb that was typed is imported, and modules import what is heavy inside their
functions. So `queuer --version` or `queuer why` never load solver, Kubernetes client or database layer.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from queuer import __version__
from queuer.domain.errors import Conflict, InvalidInput, NotFound, QueuerError, Unavailable

PROGRAM, VARIABLE = "queuer", "_QUEUER_COMPLETE"
"""The program's name, and the variable by which a shell asks for completions."""
# Verb → where it is written: a function is a command, a Typer a group of commands.
VERBS = {
    "ahead": "queuer.cli.pending:ahead",
    "apply": "queuer.cli.config:apply",
    "audit": "queuer.cli.events:audit",
    "completion": "queuer.cli.completion:completion",
    "cycles": "queuer.cli.cycles:cycles_app",
    "db": "queuer.cli.db:app",
    "diff": "queuer.cli.config:diff",
    "doctor": "queuer.cli.doctor:doctor",
    "events": "queuer.cli.events:events",
    "evict": "queuer.cli.commands:evict",
    "export": "queuer.cli.config:export",
    "hold": "queuer.cli.commands:hold",
    "import": "queuer.cli.imports:app",
    "jobs": "queuer.cli.jobs:jobs",
    "local": "queuer.cli.local:app",
    "login": "queuer.cli.login:login",
    "logout": "queuer.cli.login:logout",
    "open": "queuer.cli.login:open_page",
    "plan": "queuer.cli.config:plan",
    "prioritise": "queuer.cli.commands:prioritise",
    "queue": "queuer.cli.queues:queue_app",
    "release": "queuer.cli.commands:release",
    "serve": "queuer.cli.serve:app",
    "share": "queuer.cli.queues:share",
    "sim": "queuer.cli.sim:app",
    "status": "queuer.cli.status:status",
    "top": "queuer.cli.top:top",
    "topo": "queuer.cli.topo:topo",
    "uninstall-check": "queuer.cli.uninstall:uninstall_check",
    "wait": "queuer.cli.jobs:wait",
    "whoami": "queuer.cli.login:whoami",
    "why": "queuer.cli.why:why",
}
# Where only the command line is installed: the extra whose packages a verb needs.
_EXTRAS = {"db": "store", "local": "local"}


def build(arguments: Sequence[str], *, completing: bool = False) -> typer.Typer:
    """The command line for these arguments: the verb that is named, else all; `completing`: else their names."""
    root = typer.Typer(
        name="queuer",
        help="Admission-control job queue for Kubernetes: whole gangs, hierarchical quota, topology.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=completing,  # `queuer completion` prints what the options that come with it would
    )
    root.callback()(_root)
    root.command("version")(_version)
    verbs = [verb for verb in arguments[:1] if verb in VERBS]
    for verb in verbs or VERBS:
        found = _named if completing and not verbs else _load(verb)
        if isinstance(found, typer.Typer):
            root.add_typer(found, name=verb)
        else:
            root.command(verb)(found)
    return root


def _load(verb: str) -> Any:
    module, _, attribute = VERBS[verb].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _named() -> None:
    """Stands for a verb of which only the name is needed."""


def run() -> None:
    """Entry point of `queuer` and `kubectl queuer`."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["version"]):
        return _version()
    before = finished(os.environ)
    if before is not None:
        return _complete(before)
    try:
        build(arguments)()
    except QueuerError as error:
        _fail(error.message, _exit_code(error), hint=error.hint, next=getattr(error, "next", ""))
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "queuer":
            raise
        extra = _EXTRAS.get(arguments[0], "server") if arguments else "server"
        _fail(f"this needs the package {error.name}: pip install 'queuer[{extra}]'", 1)
    except KeyError as error:
        if not (there := _other_version()):
            raise
        text = f"{error} is missing: the server is of version {there}, this is {__version__}"
        _fail(text, 1, hint=f"pip install 'queuer=={there}', or upgrade the server")
    except PermissionError as error:
        _fail(f"{error.strerror}: {error.filename}", 1)
    except KeyboardInterrupt:
        _fail("interrupted", 130)


def finished(environ: Mapping[str, str]) -> list[str] | None:
    """The words before the one that a shell wants completed, without the program's; None: no shell asks."""
    if not environ.get(VARIABLE):
        return None
    if "COMP_WORDS" in environ:
        return _words(environ["COMP_WORDS"])[1 : int(environ.get("COMP_CWORD", "1"))]
    line = environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _words(line)[1:]
    return words if line.endswith(" ") else words[:-1]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a quote that is still open
        return line.split()


def _complete(before: Sequence[str]) -> None:
    """Answer a shell. A verb whose packages are not installed has nothing to offer."""
    with suppress(ModuleNotFoundError):
        build(before, completing=True)(prog_name=PROGRAM)


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        _version()
        raise typer.Exit


def _version() -> None:
    """Print the version."""
    typer.echo(f"queuer {__version__}")


def _other_version() -> str:
    """The server's version where it differs from this one; "" = it is the same, or the server does not say."""
    from queuer.cli.client import fetch

    try:
        there = str(fetch("/meta")["version"])
    except (QueuerError, KeyError):
        return ""
    return "" if there == __version__ else there


def _exit_code(error: QueuerError) -> int:
    from queuer.cli.failures import CommandFailed, Exit

    if isinstance(error, CommandFailed):
        return error.exit_code
    codes = {
        InvalidInput: Exit.USAGE,
        NotFound: Exit.NOT_FOUND,
        Conflict: Exit.CONFLICT,
        Unavailable: Exit.UNREACHABLE,
    }
    return next((code for kind, code in codes.items() if isinstance(error, kind)), Exit.FAILURE)


def _fail(message: str, code: int, *, hint: str = "", next: str = "") -> None:
    """Say what is wrong, what to do about it, and a command for that."""
    from queuer.cli.output import clean

    said = f"queuer: {message}" + (f"\n  do: {hint}" if hint else "") + (f"\n  next: {next}" if next else "")
    typer.echo("\n".join(map(clean, said.split("\n"))), err=True)
    sys.exit(code)

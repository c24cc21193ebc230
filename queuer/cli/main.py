"""The root of the command line: finds the module of a verb, turns errors into a sentence and an exit code.

Only the module of the verb that was typed is imported, and modules import what is heavy inside their functions,
so that `queuer --version` or `queuer why` never load the solver, the Kubernetes client or the database layer.
To add a verb: write a module with `register(root: typer.Typer) -> None` and name it in `VERBS`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated

import typer

from queuer import __version__
from queuer.domain.errors import Conflict, InvalidInput, NotFound, QueuerError, Unavailable

VERBS = {
    "apply": "queuer.cli.queues",
    "db": "queuer.cli.db",
    "jobs": "queuer.cli.jobs",
    "local": "queuer.cli.local",
    "queue": "queuer.cli.queues",
    "serve": "queuer.cli.serve",
    "why": "queuer.cli.jobs",
}
# What to install where only the command line is: the extra whose packages a verb needs.
_EXTRAS = {"db": "store", "local": "local", "serve": "server"}


class ExitCode(IntEnum):
    """Exit codes that scripts may rely on."""

    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 5
    UNAVAILABLE = 7


_EXIT_CODES: dict[type[QueuerError], ExitCode] = {
    InvalidInput: ExitCode.USAGE,
    NotFound: ExitCode.NOT_FOUND,
    Conflict: ExitCode.CONFLICT,
    Unavailable: ExitCode.UNAVAILABLE,
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: one verb's module, or all when none is named (help, completion)."""
    root = typer.Typer(
        name="queuer",
        help="Admission-control job queue for Kubernetes: whole gangs, hierarchical quota, topology.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    root.callback()(_root)
    root.command("version")(_version)
    typed = [VERBS[argument] for argument in arguments[:1] if argument in VERBS]
    if not typed and "version" not in arguments:
        typed = [module for module in sorted(set(VERBS.values())) if importlib.util.find_spec(module)]
    for module in typed:
        importlib.import_module(module).register(root)
    return root


def run() -> None:
    """Entry point of `queuer` and `kubectl queuer`."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        return _version()
    try:
        build(arguments)()
    except QueuerError as error:
        _fail(str(error), _exit_code(error))
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "queuer":
            raise
        extra = _EXTRAS.get(arguments[0], "server")
        _fail(f"this verb needs {error.name}: pip install 'queuer[{extra}]'", ExitCode.FAILURE)
    except KeyboardInterrupt:
        _fail("interrupted", ExitCode.FAILURE)


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


def _exit_code(error: QueuerError) -> ExitCode:
    return next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), ExitCode.FAILURE)


def _fail(message: str, code: ExitCode) -> None:
    typer.echo(f"queuer: {message}", err=True)
    sys.exit(code)

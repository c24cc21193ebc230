"""`queuer queue where`: to which queue a job would go, by which rule, and whether its user may use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from queuer.cli.client import Client
from queuer.cli.failures import CommandFailed, Exit
from queuer.cli.names import queue_paths
from queuer.cli.output import Printer, printed, written
from queuer.domain.queue import ROOT


@printed
def where(
    queue: Annotated[
        str,
        typer.Argument(
            help="What the job's label, or the namespace's default-queue, names.", autocompletion=queue_paths
        ),
    ] = ROOT,
    *,
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Namespace of the job.")],
    user: Annotated[str | None, typer.Option(help="Who would submit it; default: you.")] = None,
    group: Annotated[
        str | None, typer.Option(help="A group of theirs; default: yours, where nobody is named.")
    ] = None,
    out: Printer,
) -> None:
    """Show to which queue a job would go, by which rule, and whether its user may use it.

    Examples:

      queuer queue where root.research -n team-a --user alice
    """
    with Client.from_env() as client:
        found = client.get("/routing", queue=queue, namespace=namespace, user=user, group=group)
    if found["state"] is None:
        raise CommandFailed(found["reason"], hint="queuer queue ls", exit_code=Exit.NOT_FOUND)
    if not out.for_people:
        out.answer(found, names=[found["queue"]])
        return
    state = f"  [{found['state']}]" if found["state"] not in (None, "open") else ""
    out.line(f"{found['queue']}{state}  for {found['user']} in {found['namespace']}")
    for step in found["steps"]:
        out.line(f"  by rule     {written(step['rule'])} of {step['queue']}")
    out.line("  may use it  " + ("yes" if found["may"] else f"no: {found['reason']}"))
    out.line(f"  access      {settings(found['access'])}")
    out.line(f"  usable      {' '.join(found['usable']) or 'none'}")


def settings(found: Mapping[str, object]) -> str:
    """Settings of a queue in one line."""
    return ", ".join(f"{key}: {written(value)}" for key, value in found.items())

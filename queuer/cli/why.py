"""`queuer why`: why a job waits, with numbers, and what would let it start; or of all jobs, by reason."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuer.cli.arguments import ExitStatus, Namespace
from queuer.cli.client import Client
from queuer.cli.completion import job_names
from queuer.cli.failures import EXIT_BY_VERDICT, Exit, Misused
from queuer.cli.jobs import find, reference
from queuer.cli.output import Column, Printer, View, ago, asked, decided, moment, printed, styled
from queuer.domain.quantity import age

if TYPE_CHECKING:
    from rich.text import Text

_LABEL_WIDTH = 14


@printed
def why(
    job: Annotated[str | None, typer.Argument(help="NAME or KIND/NAME.", autocompletion=job_names)] = None,
    *,
    namespace: Namespace = None,
    every: Annotated[bool, typer.Option("--all", help="All jobs that wait, grouped by reason.")] = False,
    exit_status: ExitStatus = False,
    out: Printer,
) -> None:
    """Say why a job waits, with numbers, and what would let it start.

    Examples:

      queuer why job/llama-70b -n team-a

      queuer why --all
    """
    if every == (job is not None):
        raise Misused(
            "one job is to be named, or all", hint="name a job, or see all of them", next="queuer why --all"
        )
    with Client.from_env() as client:
        if job is None:
            overview = client.get("/overview")
            out.listing(overview, reasons(moment(overview["asOf"])), nothing="no job waits")
            return
        found = client.get(f"/workloads/{find(client, job, namespace)['uid']}")
    if out.for_people:
        for line, indent in explain(found):
            out.line(line, indent=indent)
    else:
        out.answer(found, names=[reference(found)])
    if exit_status:
        raise typer.Exit(EXIT_BY_VERDICT.get(found["explanation"]["verdict"], Exit.OK))


def reasons(now: datetime) -> View:
    """Groups of waiting jobs, as the overview has them."""
    return View(
        items="reasons",
        name="token",
        columns=[
            Column("REASON", "token"),
            Column("VERDICT", "verdict"),
            Column("JOBS", "jobs", right=True),
            Column("ASKS", lambda group: asked(group["amounts"]), right=True),
            Column("OLDEST", lambda group: ago(group["oldest"], now), right=True, exact="oldest"),
        ],
    )


def explain(job: Mapping[str, Any]) -> list[tuple[Text, int | None]]:
    """The lines of `queuer why`, and to which column each is wrapped; None: it is a command."""
    found, now = job["explanation"], moment(job["asOf"])
    since = (now - moment(job["stateSince"])).total_seconds()
    state = "deleted" if job["deleted"] else f"{job['state']} {age(since)}"
    head = f"{job['kind'].lower()}/{job['name']}  {state}  in {job['queue']}"
    if last := decided(found["cycle"], found["ageSeconds"], found["kept"]):
        head += f"    {last}"
    lines: list[tuple[Text, int | None]] = [(styled(head), 0)]
    if found["primary"]:
        primary, verdict = found["primary"], styled(found["verdict"])
        lines.append((verdict + styled(f"  {primary['token']}: {primary['text']}"), len(verdict) + 2))
    for each in found["paragraphs"]:
        indent = None if each["label"] == "next" else _LABEL_WIDTH + 2
        lines.append((styled(f"  {each['label']:<{_LABEL_WIDTH}}{each['text']}"), indent))
    return lines

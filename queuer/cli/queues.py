"""`queuer queue` and `queuer share`: queues with settings and past, where a job would go, how fair share compares them.

`queue hold`, `drain` and `resume` change one field of a queue; all other changes go through `queuer apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from queuer.cli.arguments import QueuePath, Reason, Yes, confirm
from queuer.cli.client import Client, fetch
from queuer.cli.completion import queue_paths
from queuer.cli.config import show_plan
from queuer.cli.failures import CommandFailed, Exit, Misused
from queuer.cli.output import (
    Column,
    Key,
    Printer,
    View,
    age,
    amount_column,
    clean,
    printed,
    say,
    value,
    written,
)
from queuer.cli.pending import pending
from queuer.cli.tree import closings, tree
from queuer.domain.fields import nearest
from queuer.domain.quantity import full_name, readable, short
from queuer.domain.queue import ROOT

queue_app = typer.Typer(no_args_is_help=True, help="Queues: their quota, and what they use, lend and borrow.")
Answer = Mapping[str, Any]
_SETTINGS = View(
    name="path",
    columns=[
        Column("QUEUE", "path"),
        Column("STATE", "effectiveState"),
        Column("WEIGHT", lambda queue: f"{queue['weight']:g}", right=True),
        Column("PENDING", "pendingWorkloads", right=True),
        Column("HELD", "heldWorkloads", right=True),
        Column("ADMITTED", "admittedWorkloads", right=True),
        Column("NAMESPACES", lambda queue: ", ".join(queue["namespaces"]) or "-"),
        Column("WRITER", "managedBy"),
        Column("REVISION", "revision", right=True, wide=True),
        Column("POLICY", lambda queue: settings(queue["policy"]), wide=True),
        Column("QUOTA", lambda queue: "; ".join(map(quota_text, queue["quota"]))),
    ],
)


@printed
def ls(*, out: Printer) -> None:
    """List queues with their settings."""
    out.listing(fetch("/queues"), _SETTINGS)


def settings(found: Mapping[str, object]) -> str:
    """Settings of a queue in one line."""
    return ", ".join(f"{key}: {written(value)}" for key, value in found.items())


def quota_text(row: Answer) -> str:
    """A row of quota in few words: `gpu 16 guaranteed, limit 24 (h100)`."""
    resource = row["resource"]
    amounts = {
        key: readable(row[key], resource=resource)
        for key in ("guaranteed", "limit", "lend")
        if row[key] is not None
    }
    said = [f"{amounts.pop('guaranteed')} guaranteed"] if "guaranteed" in amounts else []
    said += [f"{key} {amount}" for key, amount in amounts.items()]
    flavor = f" ({row['flavor']})" if row["flavor"] else ""
    return f"{short(resource)} {', '.join(said)}{flavor}"


_AMOUNTS = ("used", "guaranteed", "limit", "borrowed", "lent", "pending")
_ACCOUNT = [
    Column("RESOURCE", "resource"),
    Column("FLAVOR", lambda account: account["flavor"] or "any"),
    *(amount_column(key) for key in _AMOUNTS),
]


@printed
def show(path: QueuePath, *, out: Printer) -> None:
    """Show one queue: settings, figures, and who may use it."""
    with Client.from_env() as client:
        queue = client.get(f"/queues/{path}")
        room = client.get(f"/queues/{path}/headroom")["text"] if out.for_people else ""
    if out.answered(queue, names=[queue["path"]]):
        return
    kind = "leaf, takes jobs" if queue["leaf"] else "inner queue, takes no jobs"
    writer = queue["managedBy"] or "nobody yet"
    state = f"{queue['effectiveState']}, weight {queue['weight']:g}, written by {writer}"
    out.line(f"{queue['path']}  ({kind})  {state}")
    jobs = ", ".join(
        f"{queue[f'{key}Workloads']} {word}"
        for key, word in (("pending", "waiting"), ("held", "held"), ("admitted", "admitted"))
    )
    facts: list[tuple[str, str]] = [
        *closings(queue),
        ("namespaces", ", ".join(queue["namespaces"]) or "none: nobody may use it"),
        ("policy", settings(queue["policy"])),
        ("access", settings(queue["access"])),
        *(("placement", written(rule)) for rule in queue["placement"]),
        ("jobs", jobs),
        ("room", clean(room)),
        *(("left", clean(a["remainder"])) for a in queue["accounts"] if a["remainder"]),
    ]
    for label, text in facts:
        out.line(f"  {label:<12}{text}")
    out.table(_ACCOUNT, queue["accounts"])
    say(f"next: queuer jobs -q {queue['path']}")


def hold(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Start nothing new in a queue; what runs goes on, what comes is queued."""
    _set_state(queue, "hold", reason=reason, yes=yes)


def drain(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Start nothing new in a queue and take no new jobs."""
    _set_state(queue, "drain", reason=reason, yes=yes)


def resume(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Open a queue again that is held or drains."""
    _set_state(queue, "resume", reason=reason, yes=yes)


def _set_state(queue: str, verb: str, *, reason: str, yes: bool) -> None:
    address = f"/queues/{queue}:{verb}"
    with Client.from_env() as client:
        if not yes:
            asked = client.request("POST", address, params={"dryRun": "true"})
            if not asked["changes"]:
                say(_already(client, queue))
                return
            show_plan(asked, Printer())
            confirm(f"{verb} {queue}?", yes=yes)
        done = client.post(address, {"reason": reason}, once=True)
        if not done["changes"]:
            say(_already(client, queue))
            return
    if yes:
        show_plan(done, Printer())
    say(f"applied as revision {done['revision']}; next: queuer queue show {queue}")


def _already(client: Client, queue: str) -> str:
    """Nothing was to change: the queue has that state itself, whatever holds above it."""
    found = client.get(f"/queues/{queue}")
    own, effective = found["state"], found["effectiveState"]
    above = "" if own == effective else f"; it is {effective} by a queue above it"
    return f"nothing to do: {queue} is {own} already{above}"


@printed
def history(
    path: QueuePath,
    *,
    since: Annotated[str | None, typer.Option(help="From when, RFC 3339; default: a day ago.")] = None,
    until: Annotated[str | None, typer.Option(help="Until when; default: now.")] = None,
    step: Annotated[str | None, typer.Option(help="One line for each, e.g. 5m or 1h.")] = None,
    resource: Annotated[str | None, typer.Option(help="Show this resource; default: the first.")] = None,
    out: Printer,
) -> None:
    """Show what a queue with all below it used and waited for, step by step."""
    found = fetch(f"/queues/{path}/history", since=since, until=until, step=step)
    names = sorted({row["resource"] for point in found["points"] for row in point["accounts"]})
    named = full_name(resource, names) if resource else _main_of(names)
    if resource and names and named not in names:
        raise Misused(f"no amounts of {resource} are recorded for {path}", hint=nearest(resource, names))
    out.listing(found, _steps(named), nothing="nothing is recorded for this time")
    if out.for_people and found["points"]:
        waits = found["waits"]
        half = "" if waits["p50Seconds"] is None else f"; half within {age(waits['p50Seconds'])}"
        most = "" if waits["p90Seconds"] is None else f", nine tenths within {age(waits['p90Seconds'])}"
        say(f"{named or 'no resource'}; {waits['started']} started{half}{most}")


def _main_of(names: Sequence[str]) -> str | None:
    """A device where there is one."""
    return next((name for name in names if "/" in name), names[0] if names else None)


def _steps(resource: str | None) -> View:
    def amount(key: str, point: Answer) -> str:
        rows = (a for a in point["accounts"] if a["resource"] == resource and a["flavor"] is None)
        return next((readable(row[key], resource=row["resource"]) for row in rows), "-")

    keys = [key for key in _AMOUNTS if key != "limit"]
    return View(
        items="points",
        name="at",
        columns=[
            Column("AT", "at"),
            *(Column(key.upper(), partial(amount, key), right=True) for key in keys),
            Column("WAITING", "pendingWorkloads", right=True),
            Column("ADMITTED", "admittedWorkloads", right=True),
        ],
    )


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
    labels: Annotated[
        str | None, typer.Option("-l", "--labels", help="Labels of the job: key=value, by comma.")
    ] = None,
    out: Printer,
) -> None:
    """Show to which queue a job would go, by which rule, and whether its user may use it.

    Examples:

      queuer queue where root.research -n team-a --user alice
    """
    found = fetch("/routing", queue=queue, namespace=namespace, user=user, group=group, labels=labels)
    if found["state"] is None:
        raise CommandFailed(found["reason"], next="queuer queue ls", exit_code=Exit.NOT_FOUND)
    if out.answered(found, names=[found["queue"]]):
        return
    state = f"  [{found['state']}]" if found["state"] not in (None, "open") else ""
    out.line(f"{found['queue']}{state}  for {found['user']} in {found['namespace']}")
    for step in found["steps"]:
        out.line(f"  by rule     {written(step['rule'])} of {step['queue']}")
    out.line("  may use it  " + ("yes" if found["may"] else f"no: {found['reason']}"))
    out.line(f"  access      {settings(found['access'])}")
    out.line(f"  usable      {' '.join(found['usable']) or 'none'}")


for name, verb in {
    "where": where, "pending": pending, "history": history, "hold": hold, "drain": drain, "resume": resume,
    "tree": tree, "ls": ls, "show": show,
}.items():  # fmt: skip
    queue_app.command(name)(verb)


@printed
def share(
    path: Annotated[
        str, typer.Argument(help="Queues below this one; default: all.", autocompletion=queue_paths)
    ] = ROOT,
    *,
    out: Printer,
) -> None:
    """Show fair share: each queue's excess, capacity, weight and score; then who has what is lacking of guarantees."""
    found = fetch("/fair-share", root=path)
    out.listing(found, _SHARES, nothing=f"there is nothing to compare below {path} yet")
    if not out.for_people or not found["items"]:
        return
    say("score = excess / capacity / weight + past use; the least goes first among those that borrow")
    if found["pairs"]:
        out.line("")
        out.table(_PAIRS, found["pairs"])
        say(
            "LACKS: of its guarantee, for all jobs that fit it; a queue is starved of what the next job lacks"
        )


def _figure(title: str, key: Key) -> Column:
    def text(queue: Answer) -> object:
        figure = value(queue, key)
        return f"{figure:.4g}" if isinstance(figure, float) else figure

    return Column(title, text, right=True)


_SHARES = View(
    name="path",
    columns=[
        Column("QUEUE", "path"),
        Column("BY", "now.resource"),
        *(
            _figure(key.upper(), f"now.{key}")
            for key in ("excess", "capacity", "weight", "share", "past", "score")
        ),
        _figure("WITH ITS NEXT", "offered.score"),
        Column("ORDERED BY", "orderedBy", wide=True),
        Column("NOTE", lambda queue: "entitled: goes first" if queue["entitled"] else ""),
    ],
)
_NOBODY = "nobody: it is free in pieces that do not help, or lost"
_PAIRS = [
    Column("QUEUE", "starved"),
    amount_column("amount", title="LACKS"),
    Column("RESOURCE", "resource"),
    Column("BORROWED BY", lambda pair: pair["borrower"] or _NOBODY),
]

"""`queuer cycles`: what decisions were made lately, one of them, and the stored one made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from queuer.cli.client import Client, CommandFailed
from queuer.cli.output import Format, age, console, emit, print_table, say, table

cycles_app = typer.Typer(help="Decisions: what each did, and the newest made anew.")
Output = Annotated[Format, typer.Option("-o", "--output", help="JSON and YAML are the REST answer.")]
Number = Annotated[int, typer.Argument(help="Its number.", min=0)]
_COLUMNS = ("CYCLE", "AGE", "TRIGGER", "STATUS", "TOOK", "ADMIT", "EVICT", "WAIT", "MORE")


@cycles_app.callback(invoke_without_command=True)
def cycles(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option("-n", min=1, max=500, help="How many.")] = 20,
    output: Output = Format.TABLE,
) -> None:
    """List decisions, newest first."""
    if context.invoked_subcommand is not None:
        return
    with Client.from_env() as client:
        page = client.get("/cycles", limit=str(limit))
    if output is not Format.TABLE:
        emit(page, output)
        return
    now = datetime.now(tz=UTC)
    print_table(table(_COLUMNS, [_row(each, now) for each in page["items"]], right=("CYCLE", "AGE", "TOOK")))


@cycles_app.command("show")
def show(number: Number, *, output: Output = Format.TABLE) -> None:
    """One decision with its figures."""
    with Client.from_env() as client:
        found = client.get(f"/cycles/{number}")
    if output is not Format.TABLE:
        emit(found, output)
        return
    for name, value in {**found, **found["stats"]}.items():
        if name != "stats":
            console().print(f"{name:<14}{value}", soft_wrap=True, markup=False)


@cycles_app.command("replay")
def replay(number: Number, *, output: Output = Format.TABLE) -> None:
    """Make the stored decision anew; exit 1 where it is another."""
    with Client.from_env() as client:
        found = client.get(f"/cycles/{number}/replay")
    if output is not Format.TABLE:
        emit(found, output)
    if not found["same"]:
        raise CommandFailed(
            f"the plan is another one: {found['difference']}", hint=f"queuer cycles show {number}"
        )
    if output is Format.TABLE:
        say(f"cycle {found['cycle']}: the same plan, in {found['seconds']} s")


def _row(cycle: Mapping[str, Any], now: datetime) -> Sequence[object]:
    started, finished = (datetime.fromisoformat(cycle[key]) for key in ("started", "finished"))
    return (
        cycle["id"],
        age((now - finished).total_seconds()),
        cycle["trigger"],
        cycle["status"],
        f"{(finished - started).total_seconds():.2f}s",
        cycle["admitted"],
        cycle["evicted"],
        cycle["waiting"],
        "more" if cycle["stats"].get("more") else "",
    )

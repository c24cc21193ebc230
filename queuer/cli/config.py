"""`queuer export|diff|plan|apply`: the tree as a document that is kept in files, compared, and put into force."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from queuer.cli.asking import confirm
from queuer.cli.client import Client, CommandFailed, Exit
from queuer.cli.output import Format, console, emit, say, styled

MOST_BYTES = 16 * 2**20
"""Bytes of a document."""
LEAST_REASON = 10
"""Characters of a reason for what takes something away, as the API wants it."""
_SIGNS = {"create": "+", "delete": "-"}

Output = Annotated[Format, typer.Option("-o", "--output", help="JSON and YAML are the REST answer.")]
File = Annotated[
    Path, typer.Option("-f", "--file", help="A QueueTree document, YAML or JSON; - reads stdin.")
]


class DryRun(StrEnum):
    """Where a dry run happens."""

    SERVER = "server"


class Effect(StrEnum):
    """What becomes of running work where a limit is cut below its use."""

    DRAIN = "drain"
    REFUSE = "refuse"
    EVICT = "evict"


EffectOfCuts = Annotated[
    Effect, typer.Option(help="Of cuts below use: running work stays, the plan is refused, or it is evicted.")
]
EvictAfter = Annotated[str | None, typer.Option(help="With --effect evict: when, e.g. 10m.")]


def export(
    *,
    root: Annotated[str, typer.Option(help="Only this queue and all below it.")] = "root",
    output: Annotated[Format, typer.Option("-o", "--output", help="yaml or json.")] = Format.YAML,
) -> None:
    """Print the tree as a document to edit and apply again."""
    if output is Format.TABLE:
        raise CommandFailed("a document is no table", hint="queuer export -o yaml", exit_code=Exit.USAGE)
    with Client.from_env() as client:
        emit(client.get("/queue-tree", root=root), output)


def diff(
    *,
    file: File,
    effect: EffectOfCuts = Effect.DRAIN,
    output: Output = Format.TABLE,
) -> None:
    """Show what a document would change. Exit code 0: nothing, 1: something, above 1: it failed."""
    try:
        body = _read(file)
        with Client.from_env() as client:
            plan = _plan(client, body, effect=effect, keep=False)
    except CommandFailed as error:
        error.exit_code = max(error.exit_code, Exit.USAGE)
        raise
    if plan["changes"]:
        show_plan(plan, output)
        raise typer.Exit(1)


def plan(
    *,
    file: File,
    effect: EffectOfCuts = Effect.DRAIN,
    evict_after: EvictAfter = None,
    output: Output = Format.TABLE,
) -> None:
    """Plan a change for somebody to look at: it can be applied for 15 minutes."""
    with Client.from_env() as client:
        made = _plan(client, _read(file), effect=effect, evict_after=evict_after)
    show_plan(made, output)
    if made["id"]:
        why = " --reason WHY" if made["reductions"] else ""
        say(f"next: queuer apply --changeset {made['id']}{why}")


def apply(
    *,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="A QueueTree document, YAML or JSON; - reads stdin.")
    ] = None,
    changeset: Annotated[str | None, typer.Option(help="What `queuer plan` has planned, by its id.")] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    reason: Annotated[
        str, typer.Option(help="Why, for the audit; needed where something is taken away.")
    ] = "",
    dry_run: Annotated[DryRun | None, typer.Option("--dry-run", help="Print the plan and stop.")] = None,
    effect: EffectOfCuts = Effect.DRAIN,
    evict_after: EvictAfter = None,
    output: Output = Format.TABLE,
) -> None:
    """Change the tree to what a document says: prints the plan, asks, applies all of it or nothing."""
    if (file is None) == (changeset is None):
        hint = "queuer apply -f tree.yaml, or queuer apply --changeset ID"
        raise CommandFailed("a document or a changeset is needed", hint=hint, exit_code=Exit.USAGE)
    body = None if file is None else _read(file)
    if str(file) == "-" and not yes and not dry_run:
        raise CommandFailed("a document from stdin leaves nobody to ask", hint="add -y", exit_code=Exit.USAGE)
    with Client.from_env() as client:
        if body is None:
            made = client.get(f"/changesets/{changeset}")
        else:
            keep = dry_run is None
            made = _plan(client, body, effect=effect, evict_after=evict_after, keep=keep)
        show_plan(made, output if dry_run else Format.TABLE)
        if dry_run or not made["changes"]:
            return
        require_reason(made, reason)
        confirm("apply?", yes=yes)
        done = post(client, f"/changesets/{made['id']}:apply", {"reason": reason})
    if output is Format.TABLE:
        say(f"applied as revision {done['revision']}; next: queuer queue tree")
    else:
        emit(done, output)


def _read(file: Path) -> bytes:
    """The document, read no further than any server takes it."""
    try:
        if str(file) == "-":
            body = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with file.open("rb") as stream:
                body = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise CommandFailed(
            f"cannot read {file}: {error.strerror}", hint="queuer apply -f tree.yaml", exit_code=Exit.USAGE
        ) from error
    if len(body) > MOST_BYTES:
        hint = "split the document by subtree (`root:`)"
        raise CommandFailed(f"{file} has more than {MOST_BYTES} bytes", hint=hint, exit_code=Exit.USAGE)
    return body


def _plan(
    client: Client,
    body: bytes,
    *,
    effect: Effect,
    evict_after: str | None = None,
    keep: bool = True,
) -> Any:
    params = {"effect": effect.value}
    params |= {} if evict_after is None else {"evictAfter": evict_after}
    params |= {} if keep else {"dryRun": "true"}
    headers = {"Content-Type": "application/yaml"}
    return client.request("POST", "/changesets", params=params, content=body, headers=headers)


def post(client: Client, path: str, body: Mapping[str, Any]) -> Any:
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
    return client.request("POST", path, content=json.dumps(body).encode(), headers=headers)


# The plan in words


def show_plan(plan: Mapping[str, Any], output: Format) -> None:
    if output is not Format.TABLE:
        emit(plan, output)
        return
    screen = console()
    for change in plan["changes"]:
        screen.print(styled(f"{_SIGNS.get(change['action'], '~')} {change['text']}"), soft_wrap=True)
    if not plan["changes"]:
        say("no differences: the tree is as the document says")
        return
    for line in _told(plan):
        screen.print(styled(f"  {line}"), soft_wrap=True)
    for row in plan["warnings"]:
        say(f"warning: {row['field']}: {row['message']}" + (f" ({row['hint']})" if row["hint"] else ""))


def _told(plan: Mapping[str, Any]) -> Iterator[str]:
    impact = plan["impact"]
    if impact is None:
        yield f"impact: unknown, {plan['impactMissing']}"
    else:
        yield (
            f"impact as of cycle {impact['cycle']}: {_jobs(impact['starts'])} would start, "
            f"{_jobs(impact['evicted'])} would be evicted for them, {_jobs(impact['never'])} could never start any more"
        )
    for row in plan["overLimit"]:
        of = f" on {row['flavor']}" if row["flavor"] else ""
        yield f"over limit: {row['queue']} uses {row['used']} {row['resource']}{of}, {row['over']} above {row['limit']}"
    if plan["victims"]["count"]:
        goes = (
            "are evicted"
            if plan["effect"] == Effect.EVICT
            else "stay; they would have to go for the limits to hold"
        )
        yield f"running: {_jobs(plan['victims'])} {goes}"
    for row in plan["reclaimable"]:
        of = f" on {row['flavor']}" if row["flavor"] else ""
        yield f"reclaimable: {row['amount']} {row['resource']}{of} more of what runs in {row['queue']}"
    if plan["reductions"]:
        yield f"takes something away: needs --reason of at least {LEAST_REASON} characters"


def _jobs(found: Mapping[str, Any]) -> str:
    amounts = ", ".join(f"{amount} {name}" for name, amount in found["amounts"].items() if name != "pods")
    return f"{found['count']} jobs" + (f" ({amounts})" if amounts else "")


def require_reason(plan: Mapping[str, Any], reason: str) -> None:
    if plan["reductions"] and len(reason.strip()) < LEAST_REASON:
        taken = "; ".join(f"{row['field']}: {row['message']}" for row in plan["reductions"])
        hint = f"add --reason with at least {LEAST_REASON} characters"
        raise CommandFailed(f"this takes something away: {taken}", hint=hint, exit_code=Exit.USAGE)

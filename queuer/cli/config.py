"""`queuer export|diff|plan|apply`: the tree as a document that is kept in files, compared, and put into force."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from queuer.cli.arguments import Reason, Yes, confirm
from queuer.cli.client import Client, fetch
from queuer.cli.completion import queue_paths
from queuer.cli.failures import CommandFailed, Exit, Misused
from queuer.cli.output import Format, Printer, printed, say
from queuer.domain.document import LEAST_REASON
from queuer.domain.quantity import amount_text, amounts_text, readable
from queuer.domain.queue import ROOT
from queuer.domain.reasons import be, jobs_with, plural

MOST_BYTES = 16 * 2**20
"""Bytes of a document."""
_DOCUMENT = Printer(form=Format.YAML)
MOST_NAMES = 10
"""Jobs of a plan that are named in a line; `-o json` has the first hundred."""
_UNSEEN = " (see -o json, as far as you may read them)"
_SIGNS = {"create": "+", "delete": "-"}

File = Annotated[
    Path, typer.Option("-f", "--file", help="A QueueTree document, YAML or JSON; - reads stdin.")
]


class DryRun(StrEnum):
    """Where a dry run happens."""

    SERVER = "server"


class Effect(StrEnum):
    """The fate of running work where a limit is cut below its use."""

    DRAIN = "drain"
    REFUSE = "refuse"
    EVICT = "evict"


EffectOfCuts = Annotated[
    Effect, typer.Option(help="Of cuts below use: running work stays, the plan is refused, or it is evicted.")
]
EvictAfter = Annotated[str | None, typer.Option(help="With --effect evict: when, e.g. 10m.")]


@printed
def export(
    *,
    root: Annotated[
        str, typer.Option(help="Only this queue and all below it.", autocompletion=queue_paths)
    ] = ROOT,
    out: Printer = _DOCUMENT,
) -> None:
    """Print the tree as a document to edit and apply again.

    Examples:

      queuer export --root root.research > tree.yaml
    """
    if out.for_people:
        raise Misused("a document is no table", next="queuer export -o yaml")
    document = fetch("/queue-tree", root=root)
    out.answer(document, names=document["queues"])


@printed
def diff(*, file: File, effect: EffectOfCuts = Effect.DRAIN, out: Printer) -> None:
    """Show what a document would change. Exit code 0: nothing, 1: something, above 1: it failed."""
    try:
        body = _read(file)
        with Client.from_env() as client:
            plan = _plan(client, body, effect=effect, keep=False)
    except CommandFailed as error:
        error.exit_code = max(error.exit_code, Exit.USAGE)
        raise
    if plan["changes"]:
        show_plan(plan, out)
        raise typer.Exit(1)


@printed
def plan(
    *, file: File, effect: EffectOfCuts = Effect.DRAIN, evict_after: EvictAfter = None, out: Printer
) -> None:
    """Plan a change for somebody to look at: it can be applied for 15 minutes."""
    with Client.from_env() as client:
        made = _plan(client, _read(file), effect=effect, evict_after=evict_after)
    show_plan(made, out)
    if made["id"]:
        applies = f"queuer apply --changeset {made['id']}"
        if made["reductions"]:
            say(f"do: apply it and say why, in {LEAST_REASON} characters or more: {applies} --reason TEXT")
        else:
            say(f"next: {applies}")


@printed
def apply(
    *,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="A QueueTree document, YAML or JSON; - reads stdin.")
    ] = None,
    changeset: Annotated[str | None, typer.Option(help="What `queuer plan` has planned, by its id.")] = None,
    yes: Yes = False,
    reason: Reason = "",
    dry_run: Annotated[DryRun | None, typer.Option("--dry-run", help="Print the plan and stop.")] = None,
    effect: EffectOfCuts = Effect.DRAIN,
    evict_after: EvictAfter = None,
    out: Printer,
) -> None:
    """Change the tree to what a document says: prints the plan, asks, applies all of it or nothing."""
    out.check_single()
    if (file is None) == (changeset is None):
        hint = "name one: queuer apply -f tree.yaml, or queuer apply --changeset ID"
        raise Misused("a document or a changeset is needed", hint=hint)
    body = None if file is None else _read(file)
    if str(file) == "-" and not yes and not dry_run:
        raise Misused("a document from stdin leaves nobody to ask", hint="add -y")
    with Client.from_env() as client:
        if body is None:
            made = client.get(f"/changesets/{changeset}")
        else:
            keep = dry_run is None
            made = _plan(client, body, effect=effect, evict_after=evict_after, keep=keep)
        show_plan(made, out if dry_run else Printer(color=out.color))
        if dry_run or not made["changes"]:
            return
        require_reason(made, reason)
        confirm("apply?", yes=yes)
        done = client.post(f"/changesets/{made['id']}:apply", {"reason": reason}, once=True)
    if out.for_people:
        say(f"applied as revision {done['revision']}; next: queuer queue tree")
    else:
        out.answer(done, names=[str(done["revision"])])


def _read(file: Path) -> bytes:
    """The document, read no further than any server takes it."""
    try:
        if str(file) == "-":
            body = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with file.open("rb") as stream:
                body = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise Misused(f"cannot read {file}: {error.strerror}", hint="name a file that can be read") from error
    if len(body) > MOST_BYTES:
        raise Misused(
            f"{file} has more than {MOST_BYTES} bytes", hint="split the document by subtree (`root:`)"
        )
    return body


def _plan(
    client: Client, body: bytes, *, effect: Effect, evict_after: str | None = None, keep: bool = True
) -> Any:
    params = {"effect": effect.value}
    params |= {} if evict_after is None else {"evictAfter": evict_after}
    params |= {} if keep else {"dryRun": "true"}
    try:  # a server reads more of JSON than of YAML
        json.loads(body)
        form = "json"
    except (ValueError, RecursionError):
        form = "yaml"
    headers = {"Content-Type": f"application/{form}"}
    return client.request("POST", "/changesets", params=params, content=body, headers=headers)


# The plan in words


def show_plan(plan: Mapping[str, Any], out: Printer) -> None:
    if out.answered(plan, names=(change["name"] for change in plan["changes"])):
        return
    for change in plan["changes"]:
        out.line(f"{_SIGNS.get(change['action'], '~')} {change['text']}")
    if not plan["changes"]:
        say("no differences: the tree is as the document says")
        return
    for line in _told(plan):
        out.line(f"  {line}")
    for row in plan["warnings"]:
        say(f"warning: {row['field']}: {row['message']}" + (f" ({row['hint']})" if row["hint"] else ""))


def _told(plan: Mapping[str, Any]) -> Iterator[str]:
    for row in plan["states"]:
        yield f"{row['queue']}: {row['text']}"
    impact = plan["impact"]
    if impact is None:
        yield f"impact: unknown, {plan['impactMissing']}"
    else:
        yield (
            f"impact as of cycle {impact['cycle']}: {_jobs(impact['starts'])} would start, "
            f"{_jobs(impact['evicted'])} would be evicted for them, "
            f"{_jobs(impact['unstartable'])} could never start any more"
            + (f", {_jobs(impact['unknown'])} unknown" if impact["unknown"]["count"] else "")
        )
        words = (
            ("starts", "would start"),
            ("evicted", "evicted"),
            ("unstartable", "could never start"),
            ("unknown", "unknown, having come while the queue drained"),
        )
        for key, word in words:
            if impact[key]["count"]:
                yield f"{word}: {_names(impact[key])}"
    for row in plan["overLimit"]:
        of = f" on {row['flavor']}" if row["flavor"] else ""
        over, limit = (readable(row[key], resource=row["resource"]) for key in ("over", "limit"))
        used = amount_text(row["used"], row["resource"])
        yield f"over limit: {row['queue']} uses {used}{of}, {over} above {limit}"
    if plan["victims"]["count"]:
        yield f"running: {_jobs(plan['victims'])} {_fate(plan)}: {_names(plan['victims'])}"
    if impact is not None and impact["unstartableRunning"]["count"]:
        lost = impact["unstartableRunning"]
        yield f"running: {_jobs(lost)} could never start again after leaving: {_names(lost)}"
    for row in plan["reclaimable"]:
        of = f" on {row['flavor']}" if row["flavor"] else ""
        amount = amount_text(row["amount"], row["resource"])
        yield f"reclaimable: {amount}{of} more of the preemptible work of {row['queue']}"
    if plan["reductions"]:
        yield f"takes something away: needs --reason of at least {LEAST_REASON} characters"


def _fate(plan: Mapping[str, Any]) -> str:
    one = plan["victims"]["count"] == 1
    if plan["effect"] != Effect.EVICT:
        return f"{'runs on; it' if one else 'run on; they'} would have to go for the limits to hold"
    after = plan["evictAfter"]
    sooner = " at the latest" if plan["impact"] and plan["impact"]["evicted"]["count"] else ""
    when = f"{after} after this is applied{sooner}" if after else "as soon as this is applied"
    return (
        f"{be(plan['victims']['count'])} evicted {when}, and {'waits' if one else 'wait'} in the queue again"
    )


def _jobs(found: Mapping[str, Any]) -> str:
    return jobs_with(
        found["count"], amounts_text({name: n for name, n in found["amounts"].items() if name != "pods"})
    )


def _names(found: Mapping[str, Any]) -> str:
    """The jobs that the reader may see, the first of many, and how many more there are."""
    named = [f"{job['namespace']}/{job['name']}" for job in found["jobs"][:MOST_NAMES]]
    more = found["count"] - len(named)
    return ", ".join([*named, *([plural(more, "other" if named else "job") + _UNSEEN] if more else [])])


def require_reason(plan: Mapping[str, Any], reason: str) -> None:
    if plan["reductions"] and len(reason.strip()) < LEAST_REASON:
        taken = "; ".join(f"{row['field']}: {row['message']}" for row in plan["reductions"])
        hint = f"add --reason with at least {LEAST_REASON} characters"
        raise Misused(f"this takes something away: {taken}", hint=hint)

"""`queuer cycles`: what decisions were made lately, one of them, and the stored one made anew."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from queuer.cli.client import fetch
from queuer.cli.failures import CommandFailed
from queuer.cli.jobs import full_reference, reference
from queuer.cli.output import Column, Printer, View, ago, asked, moment, printed, say
from queuer.domain.reasons import plural

cycles_app = typer.Typer(help="Decisions: what each did, and the newest made anew.")
Number = Annotated[int, typer.Argument(help="Its number.", min=0)]


@cycles_app.callback(invoke_without_command=True)
@printed
def cycles(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option("-n", min=1, max=500, help="How many.")] = 20,
    out: Printer,
) -> None:
    """List decisions, newest first."""
    if context.invoked_subcommand is not None:
        return
    page = fetch("/cycles", limit=str(limit))
    out.listing(page, _view(datetime.now(tz=UTC)), nothing="nothing was decided yet")


@cycles_app.command("show")
@printed
def show(number: Number, *, out: Printer) -> None:
    """One decision with its figures."""
    found = fetch(f"/cycles/{number}")
    if out.answered(found, names=[str(found["id"])]):
        return
    for name, value in {**found, **found["stats"]}.items():
        if name not in ("stats", "decisions", "before", "after"):
            out.line(f"{name:<14}{value}")
    if found["decisions"]:
        out.line("")
        out.entries(_DECISIONS, found["decisions"])


@cycles_app.command("replay")
@printed
def replay(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NUMBER|FILE", help="The stored one's number, or a file of one: no server is asked."
        ),
    ],
    *,
    out: Printer,
) -> None:
    """Make a stored decision anew; exit 1 where it is another."""
    if not what.isdecimal():
        _replay_file(Path(what), out)
        return
    number = int(what)
    found = fetch(f"/cycles/{number}/replay")
    if not out.for_people:
        out.answer(found, names=[str(found["cycle"])])
    if not found["same"]:
        raise CommandFailed(
            f"the plan is another one: {found['difference']}", next=f"queuer cycles show {number}"
        )
    if out.for_people:
        say(f"cycle {found['cycle']}: the same plan, in {found['seconds']} s")


def _replay_file(file: Path, out: Printer) -> None:
    """Make the decision in a file anew: of the controller, of `GET /cycles/{id}/bundle`, or of `sim --store`."""
    import msgspec

    from queuer.domain.reasons.run_sentences import PROVED
    from queuer.sim.files import read_bytes
    from queuer.solver import stored

    found = stored.decode(read_bytes(file), name=str(file))
    plan = stored.again(found)
    other = "none, a plan" if found.plan is None else stored.difference(found.plan, plan)
    if not out.for_people:
        facts = {"file": str(file), "now": found.now, "seed": found.seed, "budget": found.budget}
        answer = {**facts, "same": not other, "difference": other, "plan": plan}
        out.answer(msgspec.to_builtins(answer, enc_hook=dict), names=[str(file)])
    else:
        done, stats = (len(plan.admissions), len(plan.evictions), len(plan.explanations)), plan.stats
        said = "{} admitted, {} evicted, {} waiting".format(*done)
        out.line(f"DIFFERS {file.name}: {other}" if other else f"same    {file.name}: {said}")
        out.line(
            f"        {plural(stats.turns, 'gang')} had a turn; "
            f"{stats.repaired} of {plural(stats.contested, 'contested gang')} repaired "
            f"in {stats.solver_time:.3g} of {found.budget.deterministic:g} deterministic time"
        )
        out.line(
            f"        victims looked for {plural(stats.searches, 'time')}; {plural(stats.proved, 'time')} {PROVED}"
        )
    if other:
        raise typer.Exit(1)


_DECISIONS = View(
    name=reference,
    columns=[
        Column("JOB", full_reference),
        Column("QUEUE", "queue"),
        Column("ASKS", lambda each: asked(each["amounts"])),
        Column("WHAT", "text"),
    ],
)


def _view(now: datetime) -> View:
    return View(
        name=lambda cycle: str(cycle["id"]),
        columns=[
            Column("CYCLE", "id", right=True),
            Column("AGE", lambda cycle: ago(cycle["finished"], now), right=True, exact="finished"),
            Column("TRIGGER", "trigger"),
            Column("STATUS", "status"),
            Column("TOOK", _took, right=True),
            Column("ADMIT", "admitted", right=True),
            Column("EVICT", "evicted", right=True),
            Column("WAIT", "waiting", right=True),
            Column("REPLAY", lambda cycle: "yes" if cycle["replayable"] else "", wide=True),
            Column("MORE", lambda cycle: "more" if cycle["stats"].get("more") else ""),
        ],
    )


def _took(cycle: Mapping[str, Any]) -> str:
    return f"{(moment(cycle['finished']) - moment(cycle['started'])).total_seconds():.2f}s"

"""`queuer sim`: scenario files and job traces in virtual time; one more job on the running cluster (`whatif`)."""

from __future__ import annotations

import itertools
import json
import time
from math import isfinite
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queuer.cli import whatif
from queuer.domain.errors import InvalidInput, QueuerError
from queuer.sim.policy import ReplayPolicy

if TYPE_CHECKING:
    from queuer.sim.engine import Record
    from queuer.sim.replay import Setup
    from queuer.sim.report import QueueReport, Report


def _finite(value: float | None) -> float | None:
    """A number of seconds: neither nan nor infinite."""
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"{value} is no number of seconds")
    return value


StoreOption = Annotated[
    Path | None, typer.Option(help="Keep every cycle in this directory, for `queuer cycles replay`.")
]
app = typer.Typer(
    help="Simulate: the real decision on files in virtual time, or for one more job on the cluster.",
    no_args_is_help=True,
)
for verb in (whatif.shape, whatif.job):
    app.command(verb.__name__)(verb)


@app.command()
def scenario(
    files: Annotated[list[Path], typer.Argument(help="Scenario files (YAML).")],
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of lines.")] = False,
) -> None:
    """Run scenario files; one line per expectation, exit 1 on any miss."""
    from queuer.sim.judge import run
    from queuer.sim.scenario import load

    _make(store)
    report = []
    for path in files:
        try:
            verdicts = [
                {"expectation": v.expectation, "missed": v.missed}
                for v in run(load(path), record=_writer(store, path.stem))
            ]
        except QueuerError as error:
            verdicts = [{"expectation": "runs", "missed": str(error)}]
        report.append(
            {"file": str(path), "passed": not any(v["missed"] for v in verdicts), "verdicts": verdicts}
        )
        if not as_json:
            for verdict in verdicts:
                mark = "MISS" if verdict["missed"] else "ok"
                tail = f"  -> {verdict['missed']}" if verdict["missed"] else ""
                typer.echo(f"{mark:4} {path.stem}: {verdict['expectation']}{tail}")
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    if not all(entry["passed"] for entry in report):
        raise typer.Exit(1)


@app.command()
def replay(
    jobs: Annotated[Path, typer.Option(help="Job trace (CSV, plain or gzip).")],
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes of the cluster.")],
    gpus_per_node: Annotated[int, typer.Option(min=1, max=1_000_000, help="GPUs of each node.")],
    policy: Annotated[ReplayPolicy, typer.Option(help="What orders the jobs.")] = ReplayPolicy.QUEUER,
    queue: Annotated[
        list[str] | None, typer.Option(help="Only this queue of the trace; may be given several times.")
    ] = None,
    queues: Annotated[
        Path | None, typer.Option(help="Nodes guaranteed to each queue (CSV: queue, nodes, gpus_per_node).")
    ] = None,
    start: Annotated[
        float | None, typer.Option("--from", callback=_finite, help="Earliest submission, trace seconds.")
    ] = None,
    end: Annotated[
        float | None, typer.Option("--to", callback=_finite, help="Latest submission, trace seconds.")
    ] = None,
    no_borrowing: Annotated[
        bool, typer.Option("--no-borrowing", help="Each queue alone on nodes of its own.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the decision.")] = 0,
    store: StoreOption = None,
    estimates: Annotated[
        float,
        typer.Option(
            min=0, callback=_finite, help="Seconds of the trace between two forecasts of starts; 0 = none."
        ),
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")] = False,
) -> None:
    """Replay a job trace through the decision and say how long its jobs waited."""
    from queuer.sim.replay import prepare

    _make(store)
    wanted = prepare(
        jobs,
        queues_file=queues,
        only=queue or (),
        window=(start, end),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        policy=policy,
        borrowing=not no_borrowing,
    )
    result = _replay(wanted, seed=seed, store=store, estimates=estimates)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
    else:
        _print(result)


def _make(store: Path | None) -> None:
    """The directory of --store, where it is not there yet."""
    try:
        if store is not None:
            store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_store(store, error) from error


def _no_store(path: Path | None, error: OSError) -> InvalidInput:
    hint = "name a directory that can be written"
    return InvalidInput.at("--store", f"{path}: {error.strerror}", hint)


def _writer(store: Path | None, stem: str) -> Record | None:
    """A function that keeps the cycles of a run: `STEM-1.cycle` and on."""
    if store is None:
        return None
    from queuer.solver.stored import StoredCycle, encode

    numbers = itertools.count(1)

    def write(cycle: StoredCycle) -> None:
        path = store / f"{stem}-{next(numbers)}.cycle"
        try:
            path.write_bytes(encode(cycle))
        except OSError as error:
            raise _no_store(path, error) from error

    return write


def _replay(setup: Setup, *, seed: int, store: Path | None, estimates: float) -> Report:
    """Run it, with a bar on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import Progress

    from queuer.sim.replay import replay as run

    begin = min(job.submitted for job in setup.jobs)
    end = max(job.submitted for job in setup.jobs)
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(setup.policy, total=end - begin)
        return run(
            setup,
            seed=seed,
            clock=time.perf_counter,
            record=_writer(store, setup.jobs_file.stem),
            estimates=estimates,
            progress=lambda now: progress.update(task, completed=min(now, end) - begin),
        )


def _print(result: Report) -> None:
    from queuer.cli.output import Column, Printer

    titles = ("queue", "jobs", "wait mean", "p50", "p95", "max", "turnaround mean", "evictions")
    columns = [Column(title, itemgetter(index), right=index > 0) for index, title in enumerate(titles)]
    parts: list[tuple[str, QueueReport | Report]] = list(result.queues.items())
    if len(parts) > 1:
        parts.append(("all", result))
    rows = []
    for name, part in parts:
        wait = part.wait
        seconds = (f"{s:,.0f} s" for s in (wait.mean, wait.p50, wait.p95, wait.max, part.turnaround.mean))
        rows.append((name, f"{part.jobs:,}", *seconds, part.evictions))
    Printer().table(columns, rows)
    typer.echo(
        f"{result.utilisation:.1%} of the GPU time used; {result.decisions:,} decisions, "
        f"{result.decisions_per_s:,.0f} a second"
    )
    if result.estimates is not None:
        for when, found in (("first", result.estimates.first), ("last", result.estimates.last)):
            said = f"{found.inside:.0%} started inside the range" if found.inside is not None else "none"
            typer.echo(f"start ranges, {when} told: {said} ({found.told:,} jobs)")

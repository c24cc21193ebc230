"""`queuer sim`: run scenario files against the decision core, in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from queuer.domain.errors import QueuerError

app = typer.Typer(help="Simulate: the real decision core in virtual time.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Simulate: the real decision core in virtual time."""


@app.command()
def scenario(
    files: Annotated[list[Path], typer.Argument(help="Scenario files (YAML).")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of lines.")] = False,
) -> None:
    """Run scenario files; one line per expectation, exit 1 on any miss."""
    from queuer.sim.judge import run
    from queuer.sim.scenario import load

    report = []
    for path in files:
        try:
            verdicts = [{"expectation": v.expectation, "missed": v.missed} for v in run(load(path))]
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

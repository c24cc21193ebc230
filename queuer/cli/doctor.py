"""`queuer doctor`: what is wrong with an installation, and how to mend it.

Unlike other verbs it does not rely on REST alone: where the API is down, that is what is to be found out. So it asks
the API, the cluster and the database each for itself, with what rights the caller has. It only reads. What it may
not look at is `unknown`, never `ok`.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queuer.cli import checks
from queuer.cli.client import Client, Exit
from queuer.cli.output import Column, Printer, View, printed, say, styled
from queuer.domain.finding import RIGHTS, Finding, Health, unknown

if TYPE_CHECKING:
    from queuer.domain.document import TreeDocument

_SERVER = "pip install 'queuer[server]'"


@printed
def doctor(
    *,
    kubeconfig: Annotated[
        str | None,
        typer.Option(envvar="KUBECONFIG", help="The cluster to look at. Default: ~/.kube/config."),
    ] = None,
    database_url: Annotated[
        str | None, typer.Option(envvar="QUEUER_DATABASE_URL", help="The database to look at.")
    ] = None,
    out: Printer,
) -> None:
    """Find what is wrong with the installation and say how to mend it.

    Exit 1 when something is wrong; else 4 when there was something that you may not look at.
    """
    with Client.from_env(quiet=True) as client:
        findings = list(_examine(client, _kubeconfig(kubeconfig), database_url or ""))
    if out.for_people:
        _print(findings, out)
    else:
        answer = {"findings": [asdict(finding) for finding in findings]}
        out.listing(answer, _VIEW)
    if any(finding.health is Health.WRONG for finding in findings):
        raise typer.Exit(Exit.FAILURE)
    if any(finding.fix == RIGHTS for finding in findings):
        raise typer.Exit(Exit.FORBIDDEN)


def _kubeconfig(given: str | None) -> Path | None:
    usual = Path("~/.kube/config").expanduser()
    return Path(given) if given else usual if usual.exists() else None


def _examine(client: Client, kubeconfig: Path | None, database_url: str) -> Iterator[Finding]:
    api, offsets = checks.Api(client), dict[str, float]()
    yield from api.findings()
    if api.reachable and (there := checks.ahead(client.server_time)) is not None:
        offsets["the API"] = there
    yield _database(database_url, offsets)
    yield from _cluster(kubeconfig, api.tree, offsets)
    yield checks.clocks(offsets)
    yield from checks.programs()


def _database(url: str, offsets: dict[str, float]) -> Finding:
    if not url:
        fix = "--database-url, or QUEUER_DATABASE_URL, as the servers have it"
        return unknown("database", "no database was named", fix)
    try:
        from queuer.store import doctor as store
    except ModuleNotFoundError as error:
        return unknown("database", f"the package {error.name} is not installed here", _SERVER)
    found = store.database(url)
    if found.health is Health.OK and (there := checks.ahead(lambda: store.server_time(url))) is not None:
        offsets["the database"] = there
    return found


def _cluster(
    kubeconfig: Path | None, tree: TreeDocument | None, offsets: dict[str, float]
) -> Sequence[Finding]:
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
        fix = "--kubeconfig, or KUBECONFIG"
        return [unknown("kubernetes", "no cluster was named, so nothing inside it was looked at", fix)]
    try:
        from queuer.local.doctor import examine
    except ModuleNotFoundError as error:
        return [unknown("kubernetes", f"the package {error.name} is not installed here", _SERVER)]
    return asyncio.run(examine(kubeconfig, tree, offsets))


_VIEW = View(
    columns=[Column(title=key.upper(), of=itemgetter(key)) for key in ("health", "check", "text", "fix")],
    name=itemgetter("check"),
    items="findings",
)
_STYLES = {Health.WRONG: "bold red", Health.WARNING: "yellow", Health.UNKNOWN: "cyan", Health.OK: "green"}


def _grouped(findings: Sequence[Finding]) -> list[Finding]:
    """What the caller may not look at as one, at the end."""
    barred = Counter(finding.check for finding in findings if finding.fix == RIGHTS)
    seen = [finding for finding in findings if finding.fix != RIGHTS]
    if barred:
        names = ", ".join(f"{check} ({count})" if count > 1 else check for check, count in barred.items())
        seen.append(
            unknown("rights", f"{barred.total()} checks need rights that you do not have: {names}", RIGHTS)
        )
    return seen


def _print(findings: Sequence[Finding], out: Printer) -> None:
    for finding in _grouped(findings):
        line = styled(f"{finding.health:<8} {finding.check:<12} {finding.text}")
        line.stylize(_STYLES[finding.health], 0, len(finding.health))
        out.line(line)
        if finding.fix:
            out.line(styled(f"{'':<8} {'':<12} fix: {finding.fix}"))
    counts = Counter(finding.health for finding in findings)
    say(", ".join(f"{counts[health]} {health}" for health in Health if counts[health]))

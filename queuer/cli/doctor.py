"""`queuer doctor`: finds what is wrong with an installation, and says how to mend it.

Other verbs rely on REST alone. The API may be down, so the doctor asks the API, the cluster and the database each
for itself. It has the caller's rights, and only reads. A part that it may not look at is `unknown`, never `ok`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from queuer import __version__
from queuer.cli.client import TELL, Client, made_here
from queuer.cli.failures import CommandFailed, Exit
from queuer.cli.output import Column, Printer, View, printed, say, styled
from queuer.cli.token import CREATE, LOOPBACK
from queuer.domain.document import parse
from queuer.domain.errors import InvalidInput, QueuerError
from queuer.domain.variables import read
from queuer.kube.operators import OPERATORS, USUAL
from queuer.kube.resources import CRDS, INSTALLED_IN, NAMESPACE, ROLES
from queuer.local import cluster_checks as cluster
from queuer.local.accounts import operators
from queuer.local.installed import installation, installed, policies
from queuer.local.site import (
    RIGHTS,
    Finding,
    Health,
    Site,
    Unseen,
    findings,
    not_installed,
    odd,
    ok,
    unknown,
    wrong,
)

MOST_SKEW = 5.0
"""Seconds between two clocks. Dates of HTTP have no fraction; a controller is called stale after 30."""
Kubeconfig = Annotated[
    str | None, typer.Option(envvar="KUBECONFIG", help="The cluster to look at. Default: ~/.kube/config.")
]


@dataclass(slots=True, kw_only=True)
class Installation(Site):
    """A site with its API and database. `meta` is None until the API has answered."""

    client: Client
    database_url: str = ""
    meta: Mapping[str, Any] | None = None


def api(site: Installation) -> Iterator[Finding]:
    """Whether the API answers, and is of this version. Opens `meta` and `tree`."""
    try:
        site.meta = site.client.get("/meta")
    except CommandFailed as error:
        yield wrong(error.message, _fix(error))
        return
    site.compare_clock("the API", site.client.server_time)
    # A tree of a newer version, or one that the caller may not read, leaves unknown what is compared with it.
    with suppress(CommandFailed, InvalidInput):
        site.tree = parse(site.client.get("/queue-tree"))
    url, there = site.client.url, site.meta["version"]
    if there == __version__:
        yield ok(f"{url} answers, version {__version__}")
    else:
        fix = f"pip install 'queuer=={there}', or upgrade the server"
        yield odd(f"{url} is of version {there}, this is {__version__}", fix)


def identity(site: Installation) -> Iterator[Finding]:
    """Whether callers have to log in."""
    url, fix = site.client.url, "unset QUEUER_AUTH where `queuer serve api` runs"
    if ways := (site.meta or {})["authentication"]:
        yield ok(f"one logs in with {', '.join(ways)}")
    elif urlsplit(url).hostname in LOOPBACK:
        yield odd("nobody logs in; whoever can use this machine may change everything", fix)
    else:
        yield wrong(f"nobody logs in: whoever reaches {url} may change everything", fix)


def controller(site: Installation) -> Iterator[Finding]:
    """Whether a controller decides."""
    if site.meta is None:
        raise Unseen("only the API says how it is", "mend the API first")
    try:
        said = site.client.get("/controller")
    except CommandFailed as error:
        if error.exit_code is not Exit.FORBIDDEN:
            yield wrong(f"the API does not say how it is: {error.message}", _fix(error))
            return
        raise Unseen(f"the API does not say how it is: {error.message}", CREATE) from error
    if said["state"] in ("leading", "idle"):
        yield ok(said["text"])
    elif said["state"] == "away":
        fix = "start the API server of Kubernetes, or mend the way to it: kubectl get --raw /readyz"
        yield wrong(said["text"], fix)
    elif said["state"] == "unguarded":
        yield wrong(said["text"], "mend what the checks of the cluster name")
    elif said["state"] == "failing":
        yield wrong(
            said["text"],
            "report what its log says at `no plan` or `no commit`; the next decision is the retry",
        )
    else:
        here = made_here(site.client.url)
        step = "queuer local up" if here else f"kubectl -n {site.home} logs deploy/queuer-controller"
        yield wrong(said["text"], f"start the controller, or look into its log: {step}")


def room(site: Installation) -> Iterator[Finding]:
    """Whether pods that no queue pays for hold what a queue is guaranteed or a job lacks."""
    try:
        found = site.client.get("/overview")
    except CommandFailed as error:
        raise Unseen(f"the API does not say who has the room: {error.message}", _fix(error)) from error
    told = [item["text"] for item in found["attention"] if item["kind"] == "outside"]
    fix = "delete their jobs and create them again with the label queuer.dev/queue"
    for text in told:
        yield odd(text, fix)
    if not told:
        yield ok("queues have the room that they are to share")


def database(site: Installation) -> Iterator[Finding]:
    """Whether the database answers, at the schema of this version."""
    if not (url := site.database_url):
        yield _as_the_api_has_it(site)
        return
    try:
        from queuer.store import migrate

        migrate.check(url)
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
    except QueuerError as error:
        yield wrong(error.message or str(error), error.hint or "queuer db check")
    else:
        site.compare_clock("the database", lambda: migrate.server_time(url))
        yield ok(f"it answers, at schema {migrate.head()}")


def _fix(error: CommandFailed) -> str:
    """The way out of an error. `TELL` is none: who runs the doctor runs Queuer."""
    hint = "" if error.hint == TELL else error.hint
    return error.next or hint or "mend what it names"


def _as_the_api_has_it(site: Installation) -> Finding:
    """Whether the API reaches its database, where none was named."""
    name_it = "--database-url, or QUEUER_DATABASE_URL, as the servers have it"
    if site.meta is None:
        raise Unseen("no database was named", name_it)
    try:
        site.client.get("/controller")
    except CommandFailed as error:
        if error.problem == "database_unavailable":
            return wrong(
                f"the API cannot reach it: {error.message}", "start PostgreSQL, or mend the way to it"
            )
        raise Unseen(f"no database was named, and the API does not say: {error.message}", name_it) from error
    return ok("the API reaches it; its schema is looked at where it is named")


def clocks(site: Installation) -> Iterator[Finding]:
    """Whether the clocks that could be read agree with each other and with this machine's."""
    if not (offsets := site.offsets):
        raise Unseen("no other clock could be read", "mend what does not answer first")
    first, last = (pick(offsets, key=offsets.__getitem__) for pick in (min, max))
    off = max(offsets, key=lambda name: abs(offsets[name]))
    if (skew := offsets[last] - offsets[first]) > MOST_SKEW:
        text = f"the clock of {last} is {skew:.0f} s ahead of that of {first}"
        yield wrong(text, "run NTP (chrony, systemd-timesyncd) on both machines")
    elif (skew := abs(offsets[off])) > MOST_SKEW:
        text = f"the clock of {off} differs from this machine's by {skew:.0f} s"
        yield odd(text, "run NTP here: ages that are shown would be wrong")
    else:
        yield ok(f"{', '.join(sorted(offsets))} and this machine agree within {MOST_SKEW:.0f} s")


def programs(_: Installation) -> Iterator[Finding]:
    """Whether `kubectl queuer` works on this machine."""
    if shutil.which("kubectl") is None:
        yield odd("kubectl is not on PATH", "install kubectl, or add its directory to PATH")
    elif shutil.which("kubectl-queuer") is None:
        text = "kubectl-queuer is not on PATH: `kubectl queuer` does not work"
        yield odd(text, "add the directory of the program queuer to PATH")
    else:
        yield ok("kubectl and kubectl-queuer are on PATH")


CHECKS: Sequence[tuple[str, str, Callable[[Installation], Iterator[Finding]]]] = (
    ("api", "", api),
    ("identity", "meta", identity),
    ("controller", "", controller),
    ("room", "meta", room),
    ("database", "", database),
    ("kubernetes", "", cluster.kubernetes),
    ("installation", "cluster", installation),
    ("definitions", "upgrade", installed(CRDS)),
    ("policies", "upgrade", policies),
    ("roles", "upgrade", installed(NAMESPACE, by_form=ROLES)),
    ("rights", "upgrade", cluster.rights),
    ("operators", "upgrade", operators),
    ("objects", "upgrade", cluster.config_objects),
    ("topology", "cluster", cluster.fitting("nodes", cluster.levels)),
    ("flavors", "cluster", cluster.fitting("nodes", cluster.flavors)),
    ("namespaces", "cluster", cluster.fitting("namespaces", cluster.namespaces)),
    ("jobs", "cluster", cluster.unmanaged),
    ("clocks", "", clocks),
    ("kubectl", "", programs),
)
"""All checks in order, each with its name and the part of the `Site` that it needs. A part that an earlier check could
not open has that check's finding; the checks that need it are left out."""


@printed
def doctor(
    *,
    kubeconfig: Kubeconfig = None,
    database_url: Annotated[
        str | None, typer.Option(envvar="QUEUER_DATABASE_URL", help="The database to look at.")
    ] = None,
    namespace: Annotated[
        str, typer.Option(envvar=INSTALLED_IN.name, help="The namespace in which Queuer is installed.")
    ] = INSTALLED_IN.default,
    trusted: Annotated[
        str,
        typer.Option(
            "--operators",
            envvar=OPERATORS.name,
            help="The accounts that the policies trust, as in the chart's value `operators`.",
            metavar="CONTROLLER=USER,…",
        ),
    ] = OPERATORS.default,
    out: Printer,
) -> None:
    """Find what is wrong with the installation and say how to mend it.

    Exit 1 when something is wrong; else 4 when there was something that you may not look at.
    """
    file = kubeconfig_of(kubeconfig)
    accounts = read({OPERATORS.name: trusted}, {"operators": OPERATORS}).get("operators", USUAL)
    with (
        Client.from_env(quiet=True) as client,
        Installation(
            client=client,
            database_url=database_url or "",
            kubeconfig=file,
            home=namespace,
            operators=accounts,
        ) as site,
    ):
        found = list(examine(site))
    show(found, out)


def kubeconfig_of(named: str | None) -> Path | None:
    """The file that was named, else the usual one, else None."""
    usual = Path("~/.kube/config").expanduser()
    return Path(named) if named else usual if usual.exists() else None


def show(found: Sequence[tuple[str, Finding]], out: Printer) -> None:
    """Print the findings; exit 1 where something is wrong, else 4 where a right was missing to look."""
    if out.for_people:
        _print(found, out)
    else:
        out.listing({"findings": [{"check": name, **asdict(finding)} for name, finding in found]}, _VIEW)
    if any(finding.health is Health.WRONG for _, finding in found):
        raise typer.Exit(Exit.FAILURE)
    if any(finding.fix == RIGHTS for _, finding in found):
        raise typer.Exit(Exit.FORBIDDEN)


def examine(site: Installation) -> Iterator[tuple[str, Finding]]:
    """The findings of all checks, each with the name of its check."""
    for name, needs, check in CHECKS:
        if not needs or getattr(site, needs) is not None:
            yield from findings(name, check, site)


_VIEW = View(
    items="findings",
    name="check",
    columns=[Column(key.upper(), key) for key in ("health", "check", "text", "fix")],
)
_STYLES = {Health.WRONG: "bold red", Health.WARNING: "yellow", Health.UNKNOWN: "cyan", Health.OK: "green"}


def _print(found: Sequence[tuple[str, Finding]], out: Printer) -> None:
    """A line a finding, and one at the end for all checks that the caller may not make."""
    lacking = Counter(name for name, finding in found if finding.fix == RIGHTS)
    shown = [(name, finding) for name, finding in found if finding.fix != RIGHTS]
    if lacking:
        names = ", ".join(f"{check} ({count})" if count > 1 else check for check, count in lacking.items())
        text = f"{lacking.total()} checks need rights that you do not have: {names}"
        shown.append(("rights", unknown(text, RIGHTS)))
    for name, finding in shown:
        line = styled(f"{finding.health:<8} {name:<12} {finding.text}")
        line.stylize(_STYLES[finding.health], 0, len(finding.health))
        out.line(line)
        if finding.fix:
            out.line(styled(f"{'':<8} {'':<12} fix: {finding.fix}"))
    counts = Counter(finding.health for _, finding in found)
    say(", ".join(f"{counts[health]} {health}" for health in Health if counts[health]))

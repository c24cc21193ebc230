"""`queuer local`: a whole cluster on this machine, up and down."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from queuer.local.cluster import Cluster, PartStatus
    from queuer.local.stack import Options

PARTS = (
    "postgres, etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, training-operator, "
    "jobset-controller, controller, api"
)
"""All of `queuer.local.cluster`, which takes half a second to load."""
OPTIONAL = "trainer, ray-operator, lws, mpi-operator"
"""Those that run only where they are asked for."""

app = typer.Typer(
    no_args_is_help=True,
    help="Run a whole cluster on this machine. The Kubernetes programs are built once, into .cache of a source "
    "checkout (as by `make control-plane`), else into ~/.cache/queuer; QUEUER_CACHE_DIR says otherwise.",
    rich_markup_mode=None,
)

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Where state, logs and data live. Default: QUEUER_LOCAL_DIR, else /var/lib/queuer/local "
        "for root, else ~/.local/state/queuer/local.",
        show_default=False,
    ),
]

Beside = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help=f"With this controller of further kinds of job; may be given several times: {OPTIONAL}.",
        show_default=False,
    ),
]


@app.command()
def up(
    directory: Directory = None,
    nodes: Annotated[int | None, typer.Option(show_default=False, help="Nodes in all. Default: 160.")] = None,
    blocks: Annotated[
        int | None,
        typer.Option(show_default=False, help="Blocks; racks are spread over them evenly. Default: 4."),
    ] = None,
    racks: Annotated[
        int | None,
        typer.Option(show_default=False, help="Racks; nodes are spread over them evenly. Default: 20."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(show_default=False, help="GPUs per node. Default: 8.")] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Use this existing cluster instead of starting one.", show_default=False),
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Start only this part; may be given several times. Default: all, {PARTS}.",
            show_default=False,
        ),
    ] = None,
    beside: Beside = None,
    bare: Annotated[
        bool,
        typer.Option(
            "--bare", help="Leave Queuer out, its CRDs, rights and policies too: for an installation by Helm."
        ),
    ] = False,
) -> None:
    """Start the cluster, or what is down of it, and say how to use it.

    QUEUER_DATABASE_URL names an existing database to use instead of a private PostgreSQL.
    """
    from queuer.local import stack
    from queuer.local.progress import Reporter

    sizes = {"nodes": nodes, "blocks": blocks, "racks": racks, "gpus": gpus}
    parts = (*(part or PARTS.split(", ")), *(beside or ()))
    options = _options(directory, sizes, kubeconfig=kubeconfig, parts=parts, bare=bare)
    clock = stack.Clock()
    cluster = stack.up(options, reporter=Reporter(), clock=clock)
    _print_summary(cluster, clock.seconds)


def _options(
    directory: Path | None,
    sizes: Mapping[str, int | None],
    *,
    kubeconfig: Path | None,
    parts: Sequence[str],
    bare: bool,
) -> Options:
    """The start that was asked for. Raises InvalidInput, e.g. naming a part that there is not."""
    import os

    from queuer.domain.errors import InvalidInput
    from queuer.local import stack
    from queuer.local.cluster import KNOWN_PARTS
    from queuer.local.fleet import Fleet

    if unknown := [name for name in parts if name not in KNOWN_PARTS]:
        text, hint = f"no part is named {unknown[0]!r}", f"one of {', '.join(KNOWN_PARTS)}"
        raise InvalidInput.at("--part", text, hint)
    if bare and kubeconfig is not None:
        text, hint = "nothing is left to do in an existing cluster", "leave --bare or --kubeconfig out"
        raise InvalidInput.at("--bare", text, hint)
    given = {name: size for name, size in sizes.items() if size is not None}
    return stack.Options(
        dir=directory or stack.default_directory(),
        fleet=Fleet(**given) if given else None,
        parts=tuple(parts),
        bare=bare,
        kubeconfig=kubeconfig,
        database_url=os.environ.get("QUEUER_DATABASE_URL", ""),
    )


@app.command()
def build(beside: Beside = None) -> None:
    """Build the Kubernetes programs of a local cluster, where they are not built yet."""
    from queuer.local.binaries import default_cache, ensure_binaries
    from queuer.local.progress import Reporter

    ensure_binaries(default_cache(), reporter=Reporter(), beside=beside or ())


@app.command()
def status(directory: Directory = None) -> None:
    """Say which parts run, which crashed or are frozen, and where all are. Exit code 1 when one does not run."""
    from queuer.local import stack
    from queuer.local.processes import ProcessState

    cluster = _cluster(directory)
    lines = stack.status(cluster)
    _print_table(lines)
    typer.echo()
    _print_addresses(cluster)
    crashed = [line for line in lines if line.state is ProcessState.CRASHED]
    for line in crashed:
        typer.echo(
            f"{line.part} crashed; its log is at {line.log}. `queuer local up` starts it again.", err=True
        )
    frozen = [line for line in lines if line.state is ProcessState.FROZEN]
    for line in frozen:
        typer.echo(f"{line.part} is frozen; `kill -CONT {line.pid}` wakes it.", err=True)
    if crashed or frozen:
        raise typer.Exit(1)


@app.command()
def logs(
    part: Annotated[str, typer.Argument(help="The part, as `queuer local status` names it.")],
    directory: Directory = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing what is added.")] = False,
) -> None:
    """Print the log of a part."""
    import subprocess

    from queuer.domain.errors import NotFound

    cluster = _cluster(directory)
    if part not in cluster.state.parts and part not in cluster.processes.names():
        raise NotFound(f"there is no part {part!r}", hint=f"known are {', '.join(cluster.state.parts)}")
    command = ["tail", "-n", str(lines), *(["-F"] if follow else []), str(cluster.log(part))]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


@app.command()
def demo(directory: Directory = None) -> None:
    """Play a story on the running cluster: borrow, wait with a reason, reclaim, land in one rack."""
    from queuer.local.demo import play

    play(_cluster(directory), out=sys.stdout)


@app.command()
def down(directory: Directory = None) -> None:
    """Stop everything; data is kept, `queuer local up` goes on with it."""
    from queuer.local import stack

    cluster = _cluster(directory)
    stack.down(cluster)
    typer.echo(f"stopped; the data is kept in {cluster.dir}")


@app.command()
def reset(directory: Directory = None) -> None:
    """Stop everything and delete its data: the next `queuer local up` starts empty."""
    from queuer.local import stack

    cluster = _cluster(directory)
    stack.reset(cluster)
    typer.echo(f"deleted {cluster.dir}")


def _cluster(directory: Path | None) -> Cluster:
    from queuer.local import stack
    from queuer.local.cluster import Cluster

    return Cluster.load(directory or stack.default_directory())


def _print_summary(cluster: Cluster, seconds: dict[str, float]) -> None:
    total = seconds.get("all", 0.0)
    steps = ", ".join(f"{name} {spent:.1f}" for name, spent in seconds.items() if name != "all")
    typer.echo(f"Ready in {total:.1f} s ({steps})")
    _print_addresses(cluster)


def _print_addresses(cluster: Cluster) -> None:
    """Where the parts are that pages of the docs ask for, and the lines after which their commands work."""
    from queuer.cli.token import CREATE
    from queuer.domain.errors import NotFound
    from queuer.local.cluster import API_PART, CONTROLLER_PART, POSTGRES
    from queuer.local.identities import ADMIN

    parts = cluster.state.parts
    if API_PART in parts:
        token = f"log in with the token in {cluster.kubeconfig(ADMIN)}"
        where = "" if cluster.state.kubeconfig else f"; {token}"
        typer.echo(f"Queuer      {cluster.queuer_url}  (REST and dashboard{where})")
    typer.echo(f"Kubernetes  {cluster.kubernetes_url}")
    if CONTROLLER_PART in parts:
        typer.echo(f"Controller  {cluster.controller_url}  (/readyz and /metrics)")
    if POSTGRES in parts and not cluster.state.database_url:  # another's may have a password that is no toy's
        try:
            typer.echo(f"Database    {cluster.database_url}  (for queuer db, doctor and backups)")
        except NotFound as down:
            typer.echo(f"Database    {down}")
    typer.echo("\n" + "\n".join(cluster.exports()))
    if API_PART in parts and cluster.state.kubeconfig:
        typer.echo(f"# or log in with a token of one's own: {CREATE}")


def _print_table(lines: list[PartStatus]) -> None:
    width = max((len(line.part) for line in lines), default=4)
    typer.echo(f"{'PART':{width}}  {'STATE':8}  {'PID':>8}  LOG")
    for line in lines:
        typer.echo(f"{line.part:{width}}  {line.state:8}  {line.pid or '-':>8}  {line.log}")

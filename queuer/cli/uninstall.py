"""`queuer uninstall-check`: what would stay, or be stuck, if Queuer were removed now. It asks the cluster alone."""

from __future__ import annotations

from typing import Annotated

import typer

from queuer.cli.doctor import Kubeconfig, kubeconfig_of, show
from queuer.cli.failures import CommandFailed
from queuer.cli.output import Printer, printed, say
from queuer.local.leftovers import CHECKS, QueuedJobs, queued_jobs
from queuer.local.site import Site, Unseen, findings


@printed
def uninstall_check(
    *,
    kubeconfig: Kubeconfig = None,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="Print a command for each job that waits: it starts the job as its owner wrote it.",
        ),
    ] = False,
    out: Printer,
) -> None:
    """Find what would stay, or be stuck, if Queuer were removed now. Changes nothing.

    Works while API and database are down. Exit 1 while something would be stuck; else 4 when there was something that
    you may not look at.
    """
    with Site(kubeconfig=kubeconfig_of(kubeconfig)) as site:
        try:
            site.open_cluster()
            queued = queued_jobs(site) if release else None
            checks = () if release else CHECKS
            found = [pair for name, check in checks for pair in findings(name, check, site)]
        except Unseen as reason:
            raise CommandFailed(reason.args[0], hint=reason.args[1]) from reason
    if queued is None:
        show(found, out)
    else:
        _release(queued, out)


def _release(queued: QueuedJobs, out: Printer) -> None:
    """Print the commands, and on stderr how many there are and which jobs have none."""
    waiting = [job.release for job in queued.jobs if job.waits and not job.held]
    for command in waiting:
        out.line(command)
    if queued.unreadable:
        say(f"no command for jobs that cannot be read: {', '.join(queued.unreadable)}")
    say(
        f"{len(waiting)} commands; run them once the policies of Queuer are gone"
        if waiting
        else "no job waits"
    )

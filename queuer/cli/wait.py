"""`queuer wait`: return when a job is as far as a script needs it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from queuer.cli.arguments import Job, Namespace
from queuer.cli.client import Client, CommandFailed, Exit
from queuer.cli.jobs import find, reference
from queuer.cli.output import Printer, printed
from queuer.cli.watching import looks
from queuer.domain.fields import parse_duration
from queuer.domain.workload import State


class Goal(StrEnum):
    """What to wait for."""

    ADMITTED = "admitted"
    RUNNING = "running"
    FINISHED = "finished"


_REACHED = {
    Goal.ADMITTED: {State.ADMITTED, State.PLACING, State.RUNNING, State.SUCCEEDED},
    Goal.RUNNING: {State.RUNNING, State.SUCCEEDED},
    Goal.FINISHED: {State.SUCCEEDED},
}


@printed
def wait(
    job: Job,
    *,
    goal: Annotated[Goal, typer.Option("--for", help="What to wait for.")] = Goal.ADMITTED,
    timeout: Annotated[str, typer.Option(help="How long at most, e.g. 30s or 2h.")] = "10m",
    namespace: Namespace = None,
    out: Printer,
) -> None:
    """Wait until a job is admitted, runs, or has finished. Exit 6 after the timeout, 1 where it fails before.

    Examples:

      queuer wait job/llama-70b -n team-a --for=running --timeout 2h
    """
    deadline = time.monotonic() + parse_duration(timeout, field="--timeout")
    with Client.from_env() as client:
        found = find(client, job, namespace)
        client.persist(until=deadline)
        rounds = looks()
        while not _reached(found, goal):
            if time.monotonic() >= deadline:
                raise CommandFailed(
                    f"{reference(found)} is {found['state']}, not {goal}, after {timeout}",
                    hint=f"queuer why {reference(found)} -n {found['namespace']}",
                    exit_code=Exit.TIMEOUT,
                )
            next(rounds)
            found = _again(client, found)
        if not out.for_people:
            out.answer(client.get(f"/workloads/{found['uid']}"), names=[reference(found)])
            return
    out.line(f"{reference(found)} is {found['state']}")


def _reached(job: Mapping[str, Any], goal: Goal) -> bool:
    """Whether it is that far. Raises CommandFailed where it never will be."""
    state = State(job["state"])
    if state in _REACHED[goal]:
        return True
    if state is State.FAILED or job["deleted"]:
        ended = "was deleted" if job["deleted"] else "has failed"
        hint = f"queuer events {reference(job)} -n {job['namespace']}"
        raise CommandFailed(f"{reference(job)} {ended}", hint=hint)
    return False


def _again(client: Client, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same job as it is now, by the row of the list: the detail would explain each time why it waits."""
    rows = client.get(
        "/workloads", name=job["name"], namespace=job["namespace"], deleted="true", limit="1000"
    )
    same = (row for row in rows["items"] if row["uid"] == job["uid"])
    found: Mapping[str, Any] = next(same, {**job, "deleted": True})
    return found

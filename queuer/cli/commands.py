"""`queuer hold|release|evict|prioritise JOB...`: prints what is meant, asks, and says what the controller answered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from queuer.cli.arguments import Jobs, Namespace, Reason, Yes, confirm
from queuer.cli.client import Client
from queuer.cli.failures import Exit
from queuer.cli.jobs import find, full_reference
from queuer.cli.output import Column, Printer, View, printed, say

_WAIT = "10s"
_EXIT_BY_CODE = {"not_found": Exit.NOT_FOUND, "forbidden": Exit.FORBIDDEN, "conflict": Exit.CONFLICT}
_EXIT_BY_OUTCOME = {"done": Exit.OK, "refused": Exit.CONFLICT, "gone": Exit.NOT_FOUND}


@printed
def hold(
    jobs: Jobs, *, namespace: Namespace = None, reason: Reason = "", yes: Yes = False, out: Printer
) -> None:
    """Hold jobs until they are released, whatever they say themselves. Running jobs go on."""
    _many("hold", jobs, namespace, {"reason": reason}, yes=yes, out=out)


@printed
def release(
    jobs: Jobs, *, namespace: Namespace = None, reason: Reason = "", yes: Yes = False, out: Printer
) -> None:
    """Let jobs go that are on hold."""
    _many("release", jobs, namespace, {"reason": reason}, yes=yes, out=out)


@printed
def evict(
    jobs: Jobs,
    *,
    namespace: Namespace = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Hold them once they are back in their queues.")
    ] = False,
    reason: Reason = "",
    yes: Yes = False,
    out: Printer,
) -> None:
    """Send running jobs back to their queues, whole. For who administers the queue."""
    body = {"reason": reason, "hold": hold}
    _many("evict", jobs, namespace, body, yes=yes, out=out, then=" and hold" if hold else "")


@printed
def prioritise(
    jobs: Jobs,
    *,
    priority: Annotated[
        str, typer.Option("--priority", help="A number, a PriorityClass, or `own`: what the job says itself.")
    ],
    namespace: Namespace = None,
    reason: Reason = "",
    yes: Yes = False,
    out: Printer,
) -> None:
    """Give jobs another priority than they say themselves. Only who administers the queue raises it."""
    number = re.fullmatch(r"-?[0-9]{1,10}", priority)
    value = None if priority == "own" else int(priority) if number else priority
    body = {"reason": reason, "priority": value}
    _many("prioritise", jobs, namespace, body, yes=yes, out=out, then=f" to {priority}")


def _many(
    verb: str,
    jobs: Sequence[str],
    namespace: str | None,
    body: Mapping[str, Any],
    *,
    yes: bool,
    out: Printer,
    then: str = "",
) -> None:
    with Client.from_env() as client:
        meant = _meant(client, jobs, namespace)
        for job in meant:
            say(f"{verb}{then}: {full_reference(job)}, {job['state']} in {job['queue']}")
        confirm("do it?", yes=yes)
        body = {**body, "uids": [job["uid"] for job in meant]}
        items = client.post(f"/workloads:{verb}", body, params={"wait": _WAIT}, once=True)["items"]
    _tell(meant, items, out)


def _meant(client: Client, jobs: Sequence[str], namespace: str | None) -> list[Mapping[str, Any]]:
    found = [find(client, job, namespace) for job in jobs]
    return list({job["uid"]: job for job in found}.values())


def _tell(meant: Sequence[Mapping[str, Any]], items: Sequence[Mapping[str, Any]], out: Printer) -> None:
    """Print the answer on each job. The exit code is that of the first command that was not done."""
    if not out.for_people:
        out.listing({"items": items}, _VIEW)
    codes, names = [], {job["uid"]: full_reference(job) for job in meant}
    for item in items:
        told, code = _ended(item)
        codes.append(code)
        if out.for_people:
            out.line(f"{names[item['uid']]}: {told}")
    failed = [code for code in codes if code is not Exit.OK]
    if failed:
        raise typer.Exit(failed[0])


def _ended(item: Mapping[str, Any]) -> tuple[str, Exit]:
    if item["refused"]:
        return item["refused"]["detail"], _EXIT_BY_CODE.get(item["refused"]["code"], Exit.FAILURE)
    command = item["command"]
    if command["outcome"] is None:
        return (
            f"not answered within {_WAIT}; it stands as command {command['id']} for 10 minutes",
            Exit.TIMEOUT,
        )
    said = command["message"]
    done = command["outcome"] == "done"
    return said if done else f"{command['outcome']}: {said}", _EXIT_BY_OUTCOME[command["outcome"]]


_VIEW = View(
    name="uid",
    columns=[
        Column("UID", "uid"),
        Column("OUTCOME", lambda item: (item["command"] or {}).get("outcome")),
        Column("MESSAGE", lambda item: _ended(item)[0]),
    ],
)

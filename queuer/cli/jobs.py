"""`queuer jobs` and `queuer wait`: jobs that are queued or run, once or as they change; and how verbs find one job."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from queuer.cli.arguments import InQueue, Job, Namespace, Watch
from queuer.cli.client import Client, live_states
from queuer.cli.failures import EXIT_BY_VERDICT, CommandFailed, Exit, Misused
from queuer.cli.output import Column, Format, Printer, View, ago, asked, moment, printed, say
from queuer.domain.fields import parse_duration
from queuer.domain.grants import binding
from queuer.domain.workload import State

SILENT = 10.0
"""Seconds without a sign of life after which the controller may be gone; its loop gives one every 5 s."""
PAUSE = 2.0
"""Seconds between two looks of `-w` and `queuer wait`."""
GRACE = 10.0
"""Seconds that `queuer wait` gives a queue to appear: its tree may be applied together with the job."""


@printed
def jobs(
    *,
    queue: InQueue = None,
    namespace: Namespace = None,
    state: Annotated[str | None, typer.Option(help="Comma-separated states, e.g. Queued,Running.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only jobs waiting for this reason token.")] = None,
    verdict: Annotated[
        str | None, typer.Option(help="Only waiting jobs with this verdict: WAIT, CHANGE, HELD or ESCALATE.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="How many live jobs, asking for what, by `user`, `queue`, `reason` or `state`."),
    ] = None,
    ended: Annotated[bool, typer.Option("-a", "--all", help="Also jobs that have ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    watch: Watch = False,
    out: Printer,
) -> None:
    """List jobs, the newest first.

    Examples:

      queuer jobs -q root.research --state Queued

      queuer jobs -q root.research --state Running --by user

      queuer jobs -w -n team-a
    """
    if watch:
        refuse_documents(out)
    if watch and by:
        raise Misused("-w follows jobs, and --by has none", hint="leave one of them out")
    asked = {
        "queue": queue, "namespace": namespace, "state": state or (None if ended else live_states()), "reason": reason,
        "verdict": verdict and verdict.upper(), "deleted": "true" if ended else None, "limit": str(limit),
        "groupBy": by,
    }  # fmt: skip
    narrowed = any((queue, namespace, state, reason, verdict, ended))
    with Client.from_env() as client:
        page = client.get("/workloads", **asked)
        if namespace and not (page["items"] or page["groups"]):
            check_namespace(client, namespace)
        nothing = "no job matches" if narrowed else "no live jobs (-a shows all)"
        out.listing(page, groups_of(page, by) if by else view_of(page), nothing=nothing)
        if page["next"] and out.for_people:
            say(f"the newest {limit} are shown; narrow with -q, -n, --state, --reason, or raise --limit")
        if page.get("others") and narrowed and out.for_people:
            seen = sum(group["jobs"] for group in page["groups"] or ()) or len(page["items"])
            first = "the first " if page["next"] else ""
            say(f"{first}{seen} of yours; {page['others']} of others, which you may not read")
        if watch:
            _follow(client, asked, page, out)


def _follow(client: Client, asked: Mapping[str, str | None], page: Any, out: Printer) -> None:
    """Print each job again whose state or reason changed, those that leave the list included."""
    client.persist()
    shown = {job["uid"]: _mark(job) for job in page["items"]}
    for _ in looks():
        page = client.get("/workloads", **asked)
        now = {job["uid"]: _mark(job) for job in page["items"]}
        left = [_last(client, uid) for uid in shown if uid not in now]
        rows = [*reversed(page["items"]), *(job for job in left if job is not None)]
        out.entries(
            view_of(page), [job for job in rows if shown.get(job["uid"]) != _mark(job)], headers=False
        )
        shown = now


def _mark(job: Mapping[str, Any]) -> object:
    return job["state"], job["reason"] and job["reason"]["token"], job["deleted"]


def _last(client: Client, uid: str) -> Mapping[str, Any] | None:
    """A job that is no more in the list, as it is now; None where it is kept no longer."""
    try:
        found: Mapping[str, Any] = client.get(f"/workloads/{uid}")
    except CommandFailed as error:
        if error.exit_code is Exit.NOT_FOUND:
            return None
        raise
    return found


def looks() -> Iterator[None]:
    """A look after each pause, without end. Output so far is flushed before, for a pipe too."""
    while True:
        sys.stdout.flush()
        time.sleep(PAUSE)
        yield


def refuse_documents(out: Printer) -> None:
    """Raise CommandFailed for formats that are one document: a watch has no end."""
    if out.form in (Format.JSON, Format.YAML):
        raise Misused(f"-w has no end, -o {out.form} is one document", hint="say -w -o jsonl")


def view_of(page: Any) -> View:
    """Jobs of a page, with their ages at its moment."""
    now = moment(page["asOf"])
    return View(
        name=reference,
        columns=[
            Column("JOB", reference),
            Column("NAMESPACE", "namespace"),
            Column("QUEUE", "queue"),
            Column("STATE", lambda job: "deleted" if job["deleted"] else job["state"]),
            Column("PRIO", "priority", right=True),
            Column("ASKS", lambda job: asked(job["holds"] or job["demand"])),
            Column("AGE", lambda job: ago(job["submitted"], now), right=True, exact="submitted"),
            Column("USER", "user", wide=True),
            Column("ATTEMPT", "attempt", right=True, wide=True),
            Column("DOMAINS", lambda job: ", ".join(job["domains"]), wide=True),
            Column("UID", "uid", wide=True),
            Column("REASON", lambda job: _reason(job["reason"]) or job["failure"] or ""),
        ],
    )


def groups_of(page: Mapping[str, Any], by: str) -> View:
    """Jobs that are alike, as one row."""
    now = moment(page["asOf"])
    return View(
        items="groups",
        name="key",
        columns=[
            Column(by.upper(), lambda group: group["key"] or "-"),
            Column("JOBS", "jobs", right=True),
            Column("ASKS", lambda group: asked(group["amounts"]), right=True),
            Column("OLDEST", lambda group: ago(group["oldest"], now), right=True, exact="oldest"),
        ],
    )


def _reason(reason: Mapping[str, Any] | None) -> str:
    return f"{reason['token']}: {reason['text']}" if reason else ""


def reference(job: Mapping[str, Any]) -> str:
    """The name of a job for other verbs."""
    return f"{job['kind'].lower()}/{job['name']}"


def full_reference(job: Mapping[str, Any]) -> str:
    """The name of a job with its namespace: other verbs find that job alone."""
    return f"{reference(job)} -n {job['namespace']}"


def find(client: Client, job: str, namespace: str | None) -> Mapping[str, Any]:
    """The workload that a person means: the live one of that name, else one that is still there, else the newest.

    Raises Misused for a pattern: a verb acts on the jobs that are named.
    """
    kind, _, name = job.rpartition("/")
    if not name or "*" in name:
        raise Misused(f"{job!r} names no job", hint="name one as KIND/NAME", next="queuer jobs")
    answer = client.get("/workloads", name=name, namespace=namespace, deleted="true", limit="1000")
    matches = answer["items"]
    if kind:
        matches = [m for m in matches if m["kind"].lower() == kind.lower().removesuffix("s")]
    if not matches:
        if namespace:
            check_namespace(client, namespace)
        raise _unknown(job, namespace, answer)
    matches = [m for m in matches if not m["deleted"]] or matches
    matches = [m for m in matches if not State(m["state"]).ended] or matches
    references = sorted({(m["namespace"], m["kind"]) for m in matches})
    if len(references) > 1:
        listed = ", ".join(f"{kind.lower()}/{name} -n {space}" for space, kind in references)
        space, kind = references[0]
        first_of = f"queuer why {kind.lower()}/{name} -n {space}"
        raise Misused(f"{job} is several jobs: {listed}", hint="name one of them", next=first_of)
    first: Mapping[str, Any] = matches[0]
    return first


def _unknown(job: str, namespace: str | None, answer: Mapping[str, Any]) -> CommandFailed:
    """There is no such job: it is of another kind, or not seen yet, or not queued at all."""
    where = f" in namespace {namespace}" if namespace else ""
    text = f"no {'' if '/' in job else 'job '}{job}{where} is known"
    if answer["items"]:
        other = answer["items"][0]
        return CommandFailed(
            f"{text}; did you mean {reference(other)}?", next=f"queuer why {full_reference(other)}",
            exit_code=Exit.NOT_FOUND,
        )  # fmt: skip
    if unread := _unread(answer):
        return CommandFailed(f"{text}: {unread}", next="queuer status", exit_code=Exit.NOT_FOUND)
    return CommandFailed(
        text, hint="a job is only seen with the label queuer.dev/queue in a managed namespace",
        next="queuer jobs -a" + (f" -n {namespace}" if namespace else ""), exit_code=Exit.NOT_FOUND,
    )  # fmt: skip


def _unread(answer: Mapping[str, Any]) -> str:
    """Why a job that is there may not have been seen; "" while a controller reads jobs."""
    found = answer.get("controller")
    if not found:
        return ""
    now = moment(answer["asOf"])
    if found["state"] in ("leading", "idle") and (now - moment(found["at"])).total_seconds() < SILENT:
        return ""
    heard = f"was last heard of {ago(found['at'], now)} ago" if found["at"] else "was never heard of"
    heard = "cannot read jobs, as Kubernetes does not answer it" if found["state"] == "away" else heard
    return f"if it is there, the controller has not seen it yet; it {heard}"


def check_namespace(client: Client, name: str) -> None:
    """Raise CommandFailed where nothing can be seen of a namespace: there is none, or a right is missing."""
    me = client.get("/me")
    if name in me["namespaces"]:
        return
    if me["readsEverything"]:
        raise CommandFailed(
            f"no queue names namespace {name}, and no job of it was ever seen",
            hint="name a namespace that a queue serves",
            next="queuer queue ls",
            exit_code=Exit.NOT_FOUND,
        )
    raise CommandFailed(
        f"you ({me['name']}) see nothing of namespace {name}: "
        "it has no jobs and no queue, or you may not get workloads.queuer.dev there",
        hint=f"who administers it grants that: {binding('queuer-viewer', me['name'], namespace=name)}",
        exit_code=Exit.FORBIDDEN,
    )


class Goal(StrEnum):
    """The state to wait for."""

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
    """Wait until a job is admitted, runs, or has finished.

    Exit 6 after the timeout, 1 where it fails before, 11 where it can never start as it is.

    Examples:

      queuer wait job/llama-70b -n team-a --for=running --timeout 2h
    """
    begun = time.monotonic()
    deadline = begun + parse_duration(timeout, field="--timeout")
    with Client.from_env() as client:
        found = find(client, job, namespace)
        client.persist(until=deadline)
        rounds = looks()
        while not _reached(found, goal):
            _check_startable(client, found, waited=time.monotonic() - begun)
            if time.monotonic() >= deadline:
                raise CommandFailed(
                    f"{reference(found)} is {found['state']}, not {goal}, after {timeout}",
                    next=f"queuer why {full_reference(found)}",
                    exit_code=Exit.TIMEOUT,
                )
            next(rounds)
            found = _again(client, found)
        if not out.for_people:
            out.answer(client.get(f"/workloads/{found['uid']}"), names=[reference(found)])
            return
    out.line(f"{reference(found)} is {found['state']}")


def _reached(job: Mapping[str, Any], goal: Goal) -> bool:
    """Whether it is that far. Raises CommandFailed where it has ended before."""
    state = State(job["state"])
    if state in _REACHED[goal]:
        return True
    if state is State.FAILED or job["deleted"]:
        ended = "was deleted" if job["deleted"] else "has failed"
        raise CommandFailed(f"{reference(job)} {ended}", next=f"queuer events {full_reference(job)}")
    return False


def _check_startable(client: Client, job: Mapping[str, Any], *, waited: float) -> None:
    """Raise CommandFailed where the job can never start. Its queue may be `GRACE` late."""
    if not (job["reason"] and job["reason"]["unstartable"]):
        return
    primary = client.get(f"/workloads/{job['uid']}")["explanation"]["primary"]
    params = primary["params"] if primary else {}
    missing = "queue" in params and "nearest" in params
    if primary is None or (missing and waited < GRACE):
        return
    raise CommandFailed(
        f"{reference(job)} can never start as it is: {job['reason']['text']}",
        next=f"queuer why {full_reference(job)}",
        exit_code=EXIT_BY_VERDICT["CHANGE"],
    )


def _again(client: Client, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same job as it is now, by the row of the list: the detail would explain each time why it waits."""
    rows = client.get(
        "/workloads", name=job["name"], namespace=job["namespace"], deleted="true", limit="1000"
    )
    same = (row for row in rows["items"] if row["uid"] == job["uid"])
    found: Mapping[str, Any] = next(same, {**job, "deleted": True})
    return found

"""`queuer why`: why a job waits, with numbers, and what would let it start; or of all jobs, by reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Annotated, Any

import typer

from queuer.cli.arguments import ExitStatus, Namespace
from queuer.cli.client import EXIT_BY_VERDICT, Client, CommandFailed, Exit
from queuer.cli.jobs import find, reference
from queuer.cli.names import job_names
from queuer.cli.output import Column, Printer, View, age, ago, clean, duration, moment, printed, styled
from queuer.domain.figures import devices

_LABEL_WIDTH = 14


@printed
def why(
    job: Annotated[str | None, typer.Argument(help="NAME or KIND/NAME.", autocompletion=job_names)] = None,
    *,
    namespace: Namespace = None,
    every: Annotated[bool, typer.Option("--all", help="All jobs that wait, grouped by reason.")] = False,
    exit_status: ExitStatus = False,
    out: Printer,
) -> None:
    """Say why a job waits, with numbers, and what would let it start.

    Examples:

      queuer why job/llama-70b -n team-a

      queuer why --all
    """
    if every == (job is not None):
        raise CommandFailed(
            "one job is to be named, or all", hint="queuer why JOB, or queuer why --all", exit_code=Exit.USAGE
        )
    with Client.from_env() as client:
        if job is None:
            _grouped(client, out)
            return
        found = client.get(f"/workloads/{find(client, job, namespace)['uid']}")
        past = client.get(f"/workloads/{found['uid']}/timeline")["reasons"] if out.for_people else []
    if out.for_people:
        for line in explain(found, past):
            out.line(line)
    else:
        out.answer(found, names=[reference(found)])
    if exit_status:
        raise typer.Exit(EXIT_BY_VERDICT.get(found["explanation"]["verdict"], Exit.OK))


def _grouped(client: Client, out: Printer) -> None:
    """The reasons of all jobs that wait. JSON and YAML are the overview that has them."""
    overview = client.get("/overview")
    out.listing(overview, reasons(moment(overview["asOf"])), nothing="no job waits")


def reasons(now: datetime) -> View:
    """Groups of waiting jobs, as the overview has them."""
    return View(
        items="reasons",
        name="token",
        columns=[
            Column("REASON", "token"),
            Column("VERDICT", "verdict"),
            Column("JOBS", "jobs", right=True),
            Column("ASKS", lambda group: devices(group["amounts"]), right=True),
            Column("OLDEST", lambda group: ago(group["oldest"], now), right=True, exact="oldest"),
        ],
    )


def explain(job: Mapping[str, Any], past: Sequence[Mapping[str, Any]] = ()) -> list[Any]:
    """The lines of `queuer why`. `past`: the reasons for which it has waited, of its timeline."""
    found, now = job["explanation"], moment(job["asOf"])
    waited = age(
        (now - moment(job[_SINCE.get(job["state"], "submitted")] or job["submitted"])).total_seconds()
    )
    state = "deleted" if job["deleted"] else f"{job['state']} {waited}"
    head = f"{job['kind'].lower()}/{job['name']}  {state}  in {job['queue']}"
    if found["cycle"] is not None and found["ageSeconds"] is not None:
        head += f"    cycle {found['cycle']}, {age(found['ageSeconds'])} ago"
    lines: list[Any] = [styled(head)]
    if found["primary"]:
        primary = found["primary"]
        lines.append(styled(found["verdict"]) + styled(f"  {primary['token']}: {primary['text']}"))
    lines += [_labelled(label, text) for label, text in _facts(job, past)]
    return lines


_SINCE = {
    "Admitted": "admitted",
    "Placing": "admitted",
    "Running": "landed",
    "Succeeded": "finished",
    "Failed": "finished",
}


def _facts(job: Mapping[str, Any], past: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    found = job["explanation"]
    facts = [("also", f"{other['token']}: {other['text']}") for other in found["others"]]
    facts.append(("asks", "; ".join(_pod_set(p) for p in job["podSets"]) + _topology(job)))
    if job["user"]:
        facts.append(("queued by", job["user"]))
    if override := job.get("override"):
        facts.append(("override", _override(override)))
    if job["admission"]:
        facts += [("placed", _placement(p)) for p in job["admission"]["placements"]]
    detail, now = found["detail"], moment(job["asOf"])
    if ordered := job.get("eviction"):
        facts.append(("to leave", f"evicted in {age(_until(ordered['at'], now))}: {ordered['reason']}"))
    facts += _numbers(detail, now=now)
    if detail["reservation"]:
        facts.append(("reserved", _reservation(detail["reservation"], now=now)))
    if detail["estimate"]:
        facts.append(("estimate", _estimate(detail["estimate"], now=now)))
    elif detail.get("noEstimate"):
        facts.append(("estimate", detail["noEstimate"]))
    if found["wouldAdmit"]:
        facts.append(("would admit", "  |  ".join(_change(c) for c in found["wouldAdmit"])))
    if job["attempt"] > 1:
        facts.append(("attempt", f"{job['attempt']}{_before(detail['evicted'])}"))
    if past:
        facts.append(("waited", waited(past)))
    facts += [("history", f"{m['at'][11:19]}  {m['text']}") for m in job["timeline"][-4:]]
    facts.append(("next", found["next"]))
    return facts


def waited(past: Sequence[Mapping[str, Any]]) -> str:
    """How long in all and for which reasons: whole seconds that sum to the total, as ends are rounded, not lengths."""
    by_token: dict[str, float] = {}
    for span in past:
        by_token[span["token"]] = by_token.get(span["token"], 0.0) + span["seconds"]
    ends = [round(end) for end in accumulate(by_token.values())]
    told = zip(by_token, [0, *ends], ends, strict=False)
    parts = ", ".join(f"{duration(end - begin)} {token}" for token, begin, end in told)
    return f"{duration(ends[-1])}: {parts}"


def _before(evicted: Mapping[str, Any] | None) -> str:
    """How the last attempt ended."""
    if evicted is None:
        return ""
    return f"; {evicted['at'][11:19]}  {evicted['note'] or evicted['cause'] or 'evicted'}"


def _pod_set(pod_set: Mapping[str, Any]) -> str:
    each = ", ".join(f"{v} {k}" for k, v in pod_set["requests"].items() if k != "pods")
    least = f" (at least {pod_set['minCount']})" if pod_set["minCount"] is not None else ""
    return f"{pod_set['count']}{least} x {pod_set['name']} of {each or 'nothing'}"


def _topology(job: Mapping[str, Any]) -> str:
    if job["required"]:
        return f", in one {job['required']}"
    return f", in one {job['preferred']} if possible" if job["preferred"] else ""


def _placement(place: Mapping[str, Any]) -> str:
    domain = ", ".join(f"{key.rsplit('/', 1)[-1]} {value}" for key, value in place["selector"].items())
    where = ", ".join(filter(None, (place["flavor"], domain)))
    count = place["count"] if place["held"] is None else place["held"]
    planned = "" if place["hosts"] else "to come, planned "
    return (
        f"{count} x {place['podSet']} {planned}on {_some(sorted(place['hosts'] or place['nodes']))} ({where})"
    )


def _override(found: Mapping[str, Any]) -> str:
    """What counts instead of the job's own words, and by whom."""
    said = [] if found["hold"] is None else ["held" if found["hold"] else "released"]
    said += [] if found["priority"] is None else [f"priority {found['priority']}"]
    why = f": {found['reason']}" if found["reason"] else ""
    return f"{', '.join(said)} by {found['by']} at {found['at'][11:19]}{why}"


def _reservation(held: Mapping[str, Any], *, now: datetime) -> str:
    start = _until(held["start"], now)
    begins = f"from {age(start)} from now" if start > 0 else "what frees up is kept for it"
    return f"{_some(held['hosts'])}, {begins}; for {age(_until(held['expires'], now))} at most"


def _until(time: str, now: datetime) -> float:
    """Seconds; negative where it has passed."""
    return (moment(time) - now).total_seconds()


def _some(names: Sequence[str]) -> str:
    """The first four."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _estimate(estimate: Mapping[str, Any], *, now: datetime) -> str:
    likely, last = estimate["likely"], estimate["to"]
    begins = "now" if (first := _until(estimate["from"], now)) <= 0 else f"in {age(first)}"
    ends = "or later" if last is None else f"to {age(_until(last, now))} from now"
    middle = "" if likely is None else f", likely in {age(_until(likely, now))}"
    return f"starts {begins} {ends}{middle}, if nothing comes before it{_record(estimate)}"


def _record(estimate: Mapping[str, Any]) -> str:
    """What the range rests on, and how many of the last week held."""
    n, rate = estimate["n"], estimate["hitRate"]
    held = (
        "no such range of the last 7 d is over" if not n else f"{rate:.0%} of such ranges held, n={n} in 7 d"
    )
    return f" ({'; '.join(filter(None, (estimate['basis'], held)))})"


def _numbers(detail: Mapping[str, Any], *, now: datetime) -> list[tuple[str, str]]:
    """What there is, which nodes do not count, who holds it, who comes before."""
    facts = [("free", _available(row)) for row in detail["available"]]
    if excluded := detail["excluded"]:
        facts.append(("nodes", _excluded(excluded)))
    facts += [("holds it", _holder(h, now=now)) for h in detail["holders"]]
    if ahead := detail["ahead"]:
        facts.append(("ahead", f"{ahead['gangs']} of the {ahead['of']} that wait in its queue"))
    return facts


def _available(row: Mapping[str, Any]) -> str:
    """The devices if there are any: what is free on the flavor's nodes, and the room by quota from the leaf up."""
    free = devices(row["free"])
    name = free.partition(" ")[2]
    rooms = [
        f"{level['queue']} {amount}"
        for level in row["headroom"]
        for resource, amount in level["room"].items()
        if resource.rsplit("/", 1)[-1] == name
    ]
    room = f"; room by quota: {', '.join(rooms)}" if rooms else ""
    return f"{free} on {row['flavor']}{room}"


def _excluded(excluded: Mapping[str, Any]) -> str:
    causes = ", ".join(f"{cause['nodes']} {cause['why']}" for cause in excluded["by"])
    told = f"{excluded['nodes']} of {excluded['of']} have no room for one pod" + (
        f": {causes}" if causes else ""
    )
    if domains := excluded["domains"]:
        told += f"; {domains['short']} of {domains['of']} x {domains['level']} are too small"
    return told


def _holder(holder: Mapping[str, Any], *, now: datetime) -> str:
    who = f"{holder['namespace']}/{holder['name']}" if holder["name"] else ""
    if holder["starts"]:
        starts = _until(holder["starts"], now)
        told = f"reserved for {who or 'a job of ' + holder['queue']}"
        return told + (f" in {age(starts)}" if starts > 0 else "")
    told = (
        f"{who and who + ' in '}{holder['queue']}: {holder['amount']} {holder['resource'].rsplit('/', 1)[-1]}"
    )
    if holder["leaving"]:
        return f"{told}, leaving"
    if holder["held"]:
        return f"{told}, held"
    if holder["starting"]:
        told += ", admitted in this cycle"
    if holder["ends"] is None:
        return told
    ends = _until(holder["ends"], now)
    return f"{told}, {f'ends in {age(ends)}' if ends > 0 else 'overdue'}"


def _change(change: Mapping[str, Any]) -> str:
    evictions = change.get("evictions")
    return f"{change.get('change')}" + (f" ({evictions} evictions)" if evictions else "")


def _labelled(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}}{clean(text)}"

"""`queuer jobs` and `queuer why`: what is queued, and why it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from queuer.cli.client import Client, CommandFailed, Exit
from queuer.cli.output import Format, age, clean, console, emit, print_table, say, styled, table
from queuer.domain.figures import devices
from queuer.domain.workload import State

LIVE = ",".join(state for state in State if not state.ended)
EXIT_BY_VERDICT = {"WAIT": 10, "CHANGE": 11, "ESCALATE": 12, "HELD": 13}
_LABEL_WIDTH = 14

Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Only jobs of this namespace.")]
Output = Annotated[Format, typer.Option("-o", "--output", help="JSON and YAML are the REST answer.")]


def jobs(
    *,
    queue: Annotated[
        str | None, typer.Option("-q", "--queue", help="Only this queue and all below it.")
    ] = None,
    namespace: Namespace = None,
    state: Annotated[str | None, typer.Option(help="Comma-separated states, e.g. Queued,Running.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only jobs waiting for this reason token.")] = None,
    ended: Annotated[bool, typer.Option("-a", "--all", help="Also jobs that have ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    output: Output = Format.TABLE,
) -> None:
    """List jobs, the newest first."""
    states = state or (None if ended else LIVE)
    with Client.from_env() as client:
        page = client.get(
            "/workloads", queue=queue, namespace=namespace, state=states, reason=reason,
            deleted="true" if ended else None, limit=str(limit),
        )  # fmt: skip
    if output is not Format.TABLE:
        emit(page, output)
        return
    if not page["items"]:
        say(
            "no job matches"
            if any((queue, namespace, state, reason, ended))
            else "no live jobs (-a shows all)"
        )
        return
    now = _time(page["asOf"])
    columns = ("JOB", "NAMESPACE", "QUEUE", "STATE", "PRIO", "ASKS", "AGE", "REASON")
    print_table(table(columns, [_row(job, now) for job in page["items"]], right=("PRIO", "AGE")))
    if page["next"]:
        say(f"the newest {limit} are shown; narrow with -q, -n, --state, --reason, or raise --limit")


def why(
    job: Annotated[str, typer.Argument(help="NAME or KIND/NAME.")],
    *,
    namespace: Namespace = None,
    exit_status: Annotated[
        bool,
        typer.Option(
            "--exit-status",
            help="Exit 10 WAIT, 11 CHANGE, 12 ESCALATE, 13 HELD; 0 when it waits for nothing.",
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Say why a job waits, with numbers, and what would let it start."""
    with Client.from_env() as client:
        found = client.get(f"/workloads/{find(client, job, namespace)['uid']}")
    if output is Format.TABLE:
        for line in explain(found):
            console().print(line, soft_wrap=True)
    else:
        emit(found, output)
    verdict = found["explanation"]["verdict"]
    if exit_status and verdict:
        raise typer.Exit(EXIT_BY_VERDICT[verdict])


def find(client: Client, job: str, namespace: str | None) -> Mapping[str, Any]:
    """The workload that a person means: the live one of that name, else the newest."""
    kind, _, name = job.rpartition("/")
    matches = client.get("/workloads", name=name, namespace=namespace, deleted="true", limit="1000")["items"]
    if kind:
        matches = [m for m in matches if m["kind"].lower() == kind.lower().removesuffix("s")]
    if not matches:
        where = f" in namespace {namespace}" if namespace else ""
        raise CommandFailed(
            f"no job {job}{where} is known", exit_code=Exit.NOT_FOUND,
            hint="queuer jobs -a; a job is only seen with the label queuer.dev/queue in a managed namespace",
        )  # fmt: skip
    references = sorted({(m["namespace"], m["kind"]) for m in matches})
    if len(references) > 1:
        listed = ", ".join(f"{kind.lower()}/{name} -n {space}" for space, kind in references)
        space, kind = references[0]
        raise CommandFailed(
            f"{job} is several jobs: {listed}",
            hint=f"queuer why {kind.lower()}/{name} -n {space}",
            exit_code=Exit.USAGE,
        )
    live = [m for m in matches if not State(m["state"]).ended and not m["deleted"]]
    first: Mapping[str, Any] = (live or matches)[0]
    return first


def _row(job: Mapping[str, Any], now: datetime) -> Sequence[object]:
    reason = job["reason"]
    return (
        f"{job['kind'].lower()}/{job['name']}",
        job["namespace"],
        job["queue"],
        "deleted" if job["deleted"] else styled(job["state"]),
        job["priority"],
        devices(job["holds"] or job["demand"]),
        age((now - _time(job["submitted"])).total_seconds()),
        f"{reason['token']}: {reason['text']}" if reason else "",
    )


def explain(job: Mapping[str, Any]) -> list[Any]:
    """The lines of `queuer why`."""
    found, now = job["explanation"], _time(job["asOf"])
    waited = age(
        (now - _time(job[_SINCE.get(job["state"], "submitted")] or job["submitted"])).total_seconds()
    )
    state = "deleted" if job["deleted"] else f"{job['state']} {waited}"
    head = f"{job['kind'].lower()}/{job['name']}  {state}  in {job['queue']}"
    if found["cycle"] is not None and found["ageSeconds"] is not None:
        head += f"    cycle {found['cycle']}, {age(found['ageSeconds'])} ago"
    lines: list[Any] = [styled(head)]
    if found["primary"]:
        primary = found["primary"]
        lines.append(styled(found["verdict"]) + styled(f"  {primary['token']}: {primary['text']}"))
    lines += [_labelled(label, text) for label, text in _facts(job)]
    return lines


_SINCE = {
    "Admitted": "admitted",
    "Placing": "admitted",
    "Running": "landed",
    "Succeeded": "finished",
    "Failed": "finished",
}


def _facts(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = job["explanation"]
    facts = [("also", f"{other['token']}: {other['text']}") for other in found["others"]]
    facts.append(("asks", "; ".join(_pod_set(p) for p in job["podSets"]) + _topology(job)))
    if job["user"]:
        facts.append(("queued by", job["user"]))
    if override := job.get("override"):
        facts.append(("override", _override(override)))
    if job["admission"]:
        facts += [("placed", _placement(p)) for p in job["admission"]["placements"]]
    facts += _numbers(found["detail"], now=_time(job["asOf"]).timestamp())
    if reservation := found["detail"].get("reservation"):
        facts.append(("reserved", _reservation(reservation, now=_time(job["asOf"]).timestamp())))
    if estimate := found["detail"].get("estimate"):
        facts.append(("estimate", _estimate(estimate, now=_time(job["asOf"]).timestamp())))
    if found["wouldAdmit"]:
        facts.append(("would admit", "  |  ".join(_change(c) for c in found["wouldAdmit"])))
    if job["attempt"] > 1:
        facts.append(("attempt", f"{job['attempt']}{_before(found['detail'].get('evicted'))}"))
    facts += [("history", f"{m['at'][11:19]}  {m['text']}") for m in job["timeline"][-4:]]
    facts.append(("next", found["next"]))
    return facts


def _before(evicted: Mapping[str, Any] | None) -> str:
    """How the last attempt ended."""
    if evicted is None:
        return ""
    at = datetime.fromtimestamp(evicted["at"], tz=UTC)
    return f"; {at:%H:%M:%S}  {evicted.get('note') or evicted.get('cause', 'evicted')}"


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


def _reservation(held: Mapping[str, Any], *, now: float) -> str:
    begins = (
        f"from {age(held['start'] - now)} from now" if held["start"] > now else "what frees up is kept for it"
    )
    return f"{_some(held['hosts'])}, {begins}; for {age(held['expires'] - now)} at most"


def _some(names: Sequence[str]) -> str:
    """The first four."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _estimate(estimate: Mapping[str, Any], *, now: float) -> str:
    first, likely, last = (estimate[key] for key in ("from", "likely", "to"))
    begins = "now" if first <= now else f"in {age(first - now)}"
    ends = "or later" if last is None else f"to {age(last - now)} from now"
    middle = "" if likely is None else f", likely in {age(likely - now)}"
    return f"starts {begins} {ends}{middle}, if nothing comes before it{_record(estimate)}"


def _record(estimate: Mapping[str, Any]) -> str:
    """What the range rests on, and how many of the last week held."""
    n, rate = estimate.get("n", 0), estimate.get("hitRate")
    held = (
        "no such range of the last 7 d is over" if not n else f"{rate:.0%} of such ranges held, n={n} in 7 d"
    )
    return f" ({'; '.join(filter(None, (estimate.get('basis'), held)))})"


def _numbers(detail: Mapping[str, Any], *, now: float) -> list[tuple[str, str]]:
    """What there is, which nodes do not count, who holds it, who comes before."""
    facts = [("free", _available(row)) for row in detail.get("available", ())]
    if excluded := detail.get("excluded"):
        facts.append(("nodes", _excluded(excluded)))
    facts += [("holds it", _holder(h, now=now)) for h in detail.get("holders", ())]
    if ahead := detail.get("ahead"):
        facts.append(("ahead", f"{ahead['gangs']} of the {ahead['of']} that wait in its queue"))
    return facts


def _available(row: Mapping[str, Any]) -> str:
    """The devices if there are any: what is free on the flavor's nodes, and the room by quota from the leaf up."""
    free = devices(row["free"])
    name = free.partition(" ")[2]
    rooms = [
        f"{level['queue']} {amount}"
        for level in row["headroom"]
        for resource, amount in level.items()
        if resource != "queue" and resource.rsplit("/", 1)[-1] == name
    ]
    room = f"; room by quota: {', '.join(rooms)}" if rooms else ""
    return f"{free} on {row['flavor']}{room}"


def _excluded(excluded: Mapping[str, Any]) -> str:
    causes = ", ".join(f"{cause['nodes']} {cause['why']}" for cause in excluded["by"])
    told = f"{excluded['nodes']} of {excluded['of']} have no room for one pod" + (
        f": {causes}" if causes else ""
    )
    if domains := excluded.get("domains"):
        told += f"; {domains['short']} of {domains['of']} x {domains['level']} are too small"
    return told


def _holder(holder: Mapping[str, Any], *, now: float) -> str:
    if "reservation" in holder:
        starts = holder["starts"] - now
        told = f"reserved for {holder['namespace']}/{holder['name']}"
        return told + (f" in {age(starts)}" if starts > 0 else "")
    amount = f"{holder['amount']} {holder['resource'].rsplit('/', 1)[-1]}"
    if "workload" not in holder:
        return f"{holder['queue']}: {amount}"
    told = f"{holder['namespace']}/{holder['name']} in {holder['queue']}: {amount}"
    if holder.get("leaving"):
        return f"{told}, leaving"
    if holder.get("held"):
        return f"{told}, held"
    if holder.get("starting"):
        told += ", admitted in this cycle"
    ends = holder.get("ends")
    return told if ends is None else f"{told}, {f'ends in {age(ends - now)}' if ends > now else 'overdue'}"


def _change(change: Mapping[str, Any]) -> str:
    evictions = change.get("evictions")
    return f"{change.get('change')}" + (f" ({evictions} evictions)" if evictions else "")


def _labelled(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}}{clean(text)}"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)

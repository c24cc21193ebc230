"""`queuer queue`: the tree with its figures; verbs that change a queue are in `queuer.cli.states`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from queuer.cli import states
from queuer.cli.client import Client
from queuer.cli.output import Format, age, console, emit, print_table, say, table
from queuer.domain.quantity import parse_quantity

BAR_WIDTH = 20
LEGEND = "bar: # own  : borrowed  . lent to others  - free"

queue_app = typer.Typer(no_args_is_help=True, help="Queues: their quota, and what they use, lend and borrow.")
Output = Annotated[Format, typer.Option("-o", "--output", help="JSON and YAML are the REST answer.")]
Resource = Annotated[
    str | None, typer.Option(help="Show this resource; default: the one most quota rows name.")
]
Flavor = Annotated[str | None, typer.Option(help="Show this flavor alone; default: all together.")]


for verb in (states.hold, states.drain, states.resume):
    queue_app.command(verb.__name__)(verb)


@queue_app.command("tree")
def tree(*, resource: Resource = None, flavor: Flavor = None, output: Output = Format.TABLE) -> None:
    """Show the tree of queues with used, guaranteed, borrowed, lent and pending amounts."""
    answer = _queues()
    if output is not Format.TABLE:
        emit(answer, output)
        return
    named = resource or main_resource(answer["items"])
    if named is None:
        say("no queue states a quota yet; write one with `queuer apply -f tree.yaml`")
        return
    now = datetime.fromisoformat(answer["asOf"])
    columns = ("QUEUE", "USED/GUAR", "LIMIT", "BORROW", "LENT", "PENDING", "OLDEST", "BAR")
    rows = [_tree_row(label, q, account_of(q, named, flavor), now) for label, q in drawn(answer["items"])]
    screen = console()
    screen.print(f"{named}" + (f", flavor {flavor}" if flavor else ""))
    print_table(table(columns, rows, right=columns[1:7]))
    if any((account_of(q, named, flavor) or {}).get("starved") for q in answer["items"]):
        say("! starved: work waits for room although less is used than guaranteed")
    if count := answer["items"][0]["misconfiguredWorkloads"]:
        say(f"{count} more can never start as they are: queuer jobs --state Queued")
    if answer["controller"]["state"] in ("stale", "never"):
        say(f"warning: {answer['controller']['text']}")
    others = [r for r in resources_of(answer["items"]) if r != named]
    say(LEGEND + (f"   other resources (--resource): {', '.join(others)}" if others else ""))


@queue_app.command("ls")
def ls(*, output: Output = Format.TABLE) -> None:
    """List queues with their settings."""
    answer = _queues()
    if output is not Format.TABLE:
        emit(answer, output)
        return
    columns = ("QUEUE", "STATE", "WEIGHT", "PENDING", "ADMITTED", "NAMESPACES", "WRITER", "QUOTA")
    rows = [
        (
            q["path"], q["effectiveState"], f"{q['weight']:g}", q["pendingWorkloads"], q["admittedWorkloads"],
            ", ".join(q["namespaces"]) or "-", q["managedBy"] or "-", "; ".join(map(quota_text, q["quota"])),
        )
        for q in answer["items"]
    ]  # fmt: skip
    print_table(table(columns, rows, right=("WEIGHT", "PENDING", "ADMITTED")))


@queue_app.command("show")
def show(
    path: Annotated[str, typer.Argument(help="e.g. root.research.team-a")], *, output: Output = Format.TABLE
) -> None:
    """Show one queue: settings, figures, and who may use it."""
    with Client.from_env() as client:
        queue = client.get(f"/queues/{path}")
    if output is not Format.TABLE:
        emit(queue, output)
        return
    screen = console()
    kind = "leaf, takes jobs" if queue["leaf"] else "inner queue, takes no jobs"
    screen.print(
        f"{queue['path']}  ({kind})  {queue['effectiveState']}, weight {queue['weight']:g}, "
        f"written by {queue['managedBy'] or 'nobody yet'}"
    )
    screen.print(f"  namespaces  {', '.join(queue['namespaces']) or 'none: nobody may use it'}")
    screen.print("  policy      " + ", ".join(f"{k}: {str(v).lower()}" for k, v in queue["policy"].items()))
    screen.print("  access      " + ", ".join(f"{k}: {access_text(v)}" for k, v in queue["access"].items()))
    for rule in queue["placement"]:
        screen.print(f"  placement   {access_text(rule)}")
    screen.print(f"  jobs        {queue['pendingWorkloads']} waiting, {queue['admittedWorkloads']} admitted")
    columns = ("RESOURCE", "FLAVOR", "USED", "GUARANTEED", "LIMIT", "BORROWED", "LENT", "PENDING")
    rows = [
        (
            a["resource"],
            a["flavor"] or "any",
            a["used"],
            a["guaranteed"],
            a["limit"],
            a["borrowed"],
            a["lent"],
            a["pending"],
        )
        for a in queue["accounts"]
    ]
    print_table(table(columns, rows, right=columns[2:]))
    say(f"next: queuer jobs -q {queue['path']}")


@queue_app.command("where")
def where(
    queue: Annotated[
        str, typer.Argument(help="What the job's label, or the namespace's default-queue, names.")
    ] = "root",
    *,
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Namespace of the job.")],
    user: Annotated[str | None, typer.Option(help="Who would submit it; default: you.")] = None,
    group: Annotated[
        str | None, typer.Option(help="A group of theirs; default: yours, where nobody is named.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show to which queue a job would go, by which rule, and whether its user may use it."""
    with Client.from_env() as client:
        found = client.get("/placement", queue=queue, namespace=namespace, user=user, group=group)
    if output is not Format.TABLE:
        emit(found, output)
        return
    screen = console()
    state = f"  [{found['state']}]" if found["state"] not in (None, "open") else ""
    screen.print(f"{found['queue']}{state}  for {found['user']} in {found['namespace']}")
    for step in found["steps"]:
        screen.print(f"  by rule     {access_text(step['rule'])} of {step['queue']}")
    screen.print("  may use it  " + ("yes" if found["may"] else f"no: {found['reason']}"))
    screen.print("  access      " + ", ".join(f"{k}: {access_text(v)}" for k, v in found["access"].items()))
    screen.print(f"  usable      {' '.join(found['usable']) or 'none'}")


def _queues() -> Any:
    with Client.from_env() as client:
        return client.get("/queues")


def resources_of(queues: Sequence[Mapping[str, Any]]) -> list[str]:
    """Resources by how many quota rows name them, most first."""
    rows = Counter(row["resource"] for q in queues for row in q["quota"])
    seen = {a["resource"] for q in queues for a in q["accounts"]}
    return [name for name, _ in rows.most_common()] + sorted(seen - rows.keys())


def main_resource(queues: Sequence[Mapping[str, Any]]) -> str | None:
    """The resource to show when none is asked for."""
    return next(iter(resources_of(queues)), None)


def account_of(queue: Mapping[str, Any], resource: str, flavor: str | None) -> Mapping[str, Any] | None:
    """The account of a queue for a resource, in one flavor or in all together."""
    accounts = (a for a in queue["accounts"] if a["resource"] == resource and a["flavor"] == flavor)
    return next(accounts, None)


def access_text(value: object) -> str:
    """A value of `access` as people write it: lists by comma, mappings as `key value`."""
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {access_text(each)}" for key, each in value.items()) + ")"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def quota_text(row: Mapping[str, Any]) -> str:
    """A row of quota in few words: `gpu 16 guaranteed, limit 24 (h100)`."""
    said = [f"{row[key]} guaranteed" for key in ("guaranteed",) if row[key] is not None]
    said += [f"{key} {row[key]}" for key in ("limit", "lend") if row[key] is not None]
    return f"{row['resource'].rsplit('/', 1)[-1]} {', '.join(said)}" + (
        f" ({row['flavor']})" if row["flavor"] else ""
    )


def drawn(queues: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every queue with its name drawn as a branch, parents before children."""
    children: dict[str | None, list[Mapping[str, Any]]] = {}
    for queue in queues:
        children.setdefault(queue["parent"], []).append(queue)

    def walk(parent: str | None, indent: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        kids = children.get(parent, [])
        for position, kid in enumerate(kids):
            last = position == len(kids) - 1
            name = kid["path"].rsplit(".", 1)[-1]
            yield (name if parent is None else f"{indent}{'└─ ' if last else '├─ '}{name}"), kid
            yield from walk(kid["path"], indent if parent is None else indent + ("   " if last else "│  "))

    yield from walk(None, "")


def _tree_row(
    label: str, queue: Mapping[str, Any], account: Mapping[str, Any] | None, now: datetime
) -> Sequence[object]:
    state = "" if queue["effectiveState"] == "open" else f" [{queue['effectiveState']}]"
    oldest = queue["oldestPending"]
    waiting = age((now - datetime.fromisoformat(oldest)).total_seconds()) if oldest else "-"
    if account is None:
        return (label + state, "-", "-", "-", "-", "-", waiting, "")
    pending = f"{account['pending']} ({queue['pendingWorkloads']})" if queue["pendingWorkloads"] else "0"
    return (
        label + state,
        f"{account['used']}/{account['guaranteed']}",
        account["limit"],
        f"+{account['borrowed']}" if account["borrowed"] != "0" else "-",
        f"-{account['lent']}" if account["lent"] != "0" else "-",
        pending + (" !" if account["starved"] else ""),
        waiting,
        bar(account),
    )


def bar(account: Mapping[str, Any]) -> str:
    """Used amounts over the larger of guarantee and use, `BAR_WIDTH` characters."""
    amount = {
        key: parse_quantity(account[key], resource=account["resource"])
        for key in ("used", "guaranteed", "borrowed", "lent")
    }
    whole = max(amount["guaranteed"], amount["used"])
    if whole == 0:
        return ""
    own = amount["used"] - amount["borrowed"]
    edges = [
        round(BAR_WIDTH * edge / whole)
        for edge in (own, own + amount["borrowed"], own + amount["borrowed"] + amount["lent"])
    ]
    edges = [min(edge, BAR_WIDTH) for edge in edges]
    return (
        "#" * edges[0]
        + ":" * (edges[1] - edges[0])
        + "." * (edges[2] - edges[1])
        + "-" * (BAR_WIDTH - edges[2])
    )

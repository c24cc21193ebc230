"""`queuer queue`: the tree with its figures; verbs that change a queue are in `queuer.cli.states`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from queuer.cli import states
from queuer.cli.arguments import QueuePath
from queuer.cli.client import Client, CommandFailed, Exit
from queuer.cli.history import history
from queuer.cli.jobs import moment
from queuer.cli.output import Column, Printer, View, age, clean, printed, say, styled, written
from queuer.cli.pending import pending
from queuer.cli.placement import settings, where
from queuer.domain.quantity import parse_quantity

BAR_WIDTH = 20
LEGEND = "bar: # own  : borrowed  . lent to others  - free"

queue_app = typer.Typer(no_args_is_help=True, help="Queues: their quota, and what they use, lend and borrow.")
Resource = Annotated[
    str | None, typer.Option(help="Show this resource; default: the one most quota rows name.")
]
Flavor = Annotated[str | None, typer.Option(help="Show this flavor alone; default: all together.")]


for verb in (where, pending, history, states.hold, states.drain, states.resume):
    queue_app.command(verb.__name__)(verb)


@queue_app.command("tree")
@printed
def tree(*, resource: Resource = None, flavor: Flavor = None, out: Printer) -> None:
    """Show the tree of queues with used, guaranteed, borrowed, lent and pending amounts."""
    answer = _queues()
    named = resource or main_resource(answer["items"])
    if resource or flavor:
        _check_account(answer["items"], named, flavor)
    if not out.for_people:
        out.listing(answer, _amounts(named, flavor))
        return
    if named is None:
        say("no queue states a quota yet; write one with `queuer apply -f tree.yaml`")
        return
    now = moment(answer["asOf"])
    columns = ("QUEUE", "USED/GUAR", "LIMIT", "BORROW", "LENT", "PENDING", "OLDEST", "BAR")
    rows = [_tree_row(label, q, account_of(q, named, flavor), now) for label, q in drawn(answer["items"])]
    if out.headers:
        out.line(f"{named}" + (f", flavor {flavor}" if flavor else ""))
    out.table(columns, rows, right=columns[1:7])
    _notes(answer, named, flavor)


def _check_account(queues: Sequence[Mapping[str, Any]], resource: str | None, flavor: str | None) -> None:
    """Raise CommandFailed where no queue has such amounts: a mistyped name is no empty table."""
    if not any(account_of(queue, resource or "", flavor) for queue in queues):
        there = sorted({a["flavor"] for q in queues for a in q["accounts"] if a["flavor"]})
        known = f"resources: {', '.join(resources_of(queues))}; flavors: {', '.join(there) or 'none'}"
        raise CommandFailed(
            f"no queue has amounts of {resource}"
            + (f" on flavor {flavor}" if flavor else "")
            + f" ({known})",
            hint="queuer queue tree",
            exit_code=Exit.USAGE,
        )


def _notes(answer: Mapping[str, Any], named: str, flavor: str | None) -> None:
    """What the bars mean, and what is amiss."""
    if any((account_of(q, named, flavor) or {}).get("starved") for q in answer["items"]):
        say("! starved: work waits for room although less is used than guaranteed")
    if count := answer["items"][0]["misconfiguredWorkloads"]:
        say(f"{count} more can never start as they are: queuer jobs --state Queued")
    others = [r for r in resources_of(answer["items"]) if r != named]
    say(LEGEND + (f"   other resources (--resource): {', '.join(others)}" if others else ""))


def _amounts(resource: str | None, flavor: str | None) -> View:
    """The tree as lines for programs."""

    def amount(key: str) -> Column:
        return Column(
            title=key, of=lambda q: (account_of(q, resource, flavor) or {}).get(key) if resource else None
        )

    return View(
        name=lambda q: q["path"],
        columns=[
            Column(title="queue", of=lambda q: q["path"]),
            Column(title="resource", of=lambda _: resource),
            *map(amount, ("used", "guaranteed", "limit", "borrowed", "lent", "pending", "starved")),
        ],
    )


@queue_app.command("ls")
@printed
def ls(*, out: Printer) -> None:
    """List queues with their settings."""
    out.listing(_queues(), _SETTINGS)


_SETTINGS = View(
    name=lambda q: q["path"],
    columns=[
        Column(title="QUEUE", of=lambda q: q["path"]),
        Column(title="STATE", of=lambda q: q["effectiveState"]),
        Column(title="WEIGHT", of=lambda q: f"{q['weight']:g}", right=True),
        Column(title="PENDING", of=lambda q: q["pendingWorkloads"], right=True),
        Column(title="ADMITTED", of=lambda q: q["admittedWorkloads"], right=True),
        Column(title="NAMESPACES", of=lambda q: ", ".join(q["namespaces"]) or "-"),
        Column(title="WRITER", of=lambda q: q["managedBy"]),
        Column(title="REVISION", of=lambda q: q["revision"], right=True, wide=True),
        Column(title="POLICY", of=lambda q: settings(q["policy"]), wide=True),
        Column(title="QUOTA", of=lambda q: "; ".join(map(quota_text, q["quota"]))),
    ],
)
_ACCOUNT = ("resource", "flavor", "used", "guaranteed", "limit", "borrowed", "lent", "pending")


@queue_app.command("show")
@printed
def show(path: QueuePath, *, out: Printer) -> None:
    """Show one queue: settings, figures, and who may use it."""
    with Client.from_env() as client:
        queue = client.get(f"/queues/{path}")
        room = client.get(f"/queues/{path}/headroom")["text"] if out.for_people else ""
    if not out.for_people:
        out.answer(queue, names=[queue["path"]])
        return
    kind = "leaf, takes jobs" if queue["leaf"] else "inner queue, takes no jobs"
    out.line(
        f"{queue['path']}  ({kind})  {queue['effectiveState']}, weight {queue['weight']:g}, "
        f"written by {queue['managedBy'] or 'nobody yet'}"
    )
    out.line(f"  namespaces  {', '.join(queue['namespaces']) or 'none: nobody may use it'}")
    out.line(f"  policy      {settings(queue['policy'])}")
    out.line(f"  access      {settings(queue['access'])}")
    for rule in queue["placement"]:
        out.line(f"  placement   {written(rule)}")
    out.line(
        f"  jobs        {queue['pendingWorkloads']} waiting, {queue['heldWorkloads']} held, "
        f"{queue['admittedWorkloads']} admitted"
    )
    out.line(styled(f"  room        {clean(room)}"))
    rows = [
        [account[key] or ("any" if key == "flavor" else None) for key in _ACCOUNT]
        for account in queue["accounts"]
    ]
    columns = [key.upper() for key in _ACCOUNT]
    out.table(columns, rows, right=columns[2:])
    say(f"next: queuer jobs -q {queue['path']}")


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

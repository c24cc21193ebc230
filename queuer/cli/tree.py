"""`queuer queue tree`: queues with what they use, lend and borrow. `queuer top` shows the same rows.

`drawn` draws any tree: `queuer topo` draws the domains of the topology with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import typer

from queuer.cli.client import fetch
from queuer.cli.failures import Misused
from queuer.cli.output import Column, Printer, View, ago, clean, clock, moment, printed, say
from queuer.domain.quantity import amount_text, full_name, parse_sum, readable
from queuer.domain.reasons import said_by

Answer = Mapping[str, Any]
Entry = TypeVar("Entry")
BAR_WIDTH = 16
"""Characters: with it a tree of amounts of four digits fits 80 columns."""
LEGEND = "bar: # own  : borrowed  . lent to others  - unused"
_COLUMNS = (
    Column("QUEUE", lambda row: row["name"] + row["state"]),
    Column("USED/GUAR", "use", right=True),
    Column("LIMIT", "limit", right=True),
    Column("BORROW", "borrowed", right=True),
    Column("LENT", "lent", right=True),
    Column("PENDING", "pending", right=True),
    Column("OLDEST", "oldest", right=True),
    Column("BAR", "bar"),
)


@printed
def tree(
    *,
    resource: Annotated[
        str | None, typer.Option(help="Show this resource; default: the one most quota rows name.")
    ] = None,
    flavor: Annotated[str | None, typer.Option(help="Show this flavor alone; default: all together.")] = None,
    out: Printer,
) -> None:
    """Show the tree of queues with used, guaranteed, borrowed, lent and pending amounts."""
    answer = fetch("/queues")
    queues = answer["items"]
    named = full_name(resource, resources_of(queues)) if resource else main_resource(queues)
    if (resource or flavor) and not any(account_of(queue, named, flavor) for queue in queues):
        raise _no_such_account(queues, named, flavor)
    if not out.for_people:
        out.listing(answer, _amounts(named, flavor))
    elif named is None:
        say("no queue states a quota yet; write one with `queuer apply -f tree.yaml`")
    else:
        if out.headers:
            out.line(f"{named}" + (f", flavor {flavor}" if flavor else ""))
        out.table(_COLUMNS, tree_rows(queues, named, flavor, moment(answer["asOf"])))
        _notes(queues, named, flavor)


def _no_such_account(queues: Sequence[Answer], resource: str | None, flavor: str | None) -> Misused:
    """A mistyped name is no empty table."""
    there = sorted({a["flavor"] for q in queues for a in q["accounts"] if a["flavor"]})
    known = f"resources: {', '.join(resources_of(queues))}; flavors: {', '.join(there) or 'none'}"
    where = f" on flavor {flavor}" if flavor else ""
    return Misused(f"no queue has amounts of {resource}{where} ({known})", next="queuer queue tree")


def _notes(queues: Sequence[Answer], named: str, flavor: str | None) -> None:
    """Say the meaning of the bars, and the faults of the tree."""
    if any((account_of(queue, named, flavor) or {}).get("starved") for queue in queues):
        say("! starved: others borrow the room that the next job is guaranteed and lacks")
    for queue in queues:
        for label, text in closings(queue, inherited=False):
            say(f"{queue['path']}: {label}, {text}")
    if count := queues[0]["unstartableWorkloads"]:
        say(f"{count} more need a change of the job or of a queue: queuer jobs --verdict CHANGE")
    outside = (account_of(queues[0], named, flavor) or {}).get("outside")
    if outside and outside != "0":
        say(f"{amount_text(outside, named)} more are used by pods that no queue pays for: queuer status")
    others = [r for r in resources_of(queues) if r != named]
    say(LEGEND + (f"   other resources (--resource): {', '.join(others)}" if others else ""))


def closings(queue: Answer, *, inherited: bool = True) -> Iterator[tuple[str, str]]:
    """Since when, by whom and why a queue is not open, or over a limit. `inherited`: also by a queue above it."""
    if queue["effectiveState"] != "open" and (inherited or queue["state"] != "open"):
        made = queue.get("closed")
        above = "" if made is None or made["queue"] == queue["path"] else f"with {made['queue']} above it, "
        yield (
            queue["effectiveState"],
            above + ("since an unknown time" if made is None else f"set{_origin(made)}"),
        )
    for account in queue["accounts"]:
        if account.get("overLimit", "0") != "0":
            of = f" on {account['flavor']}" if account["flavor"] else ""
            cut = f"; the limit was cut{_origin(account['cut'])}" if account.get("cut") else ""
            yield (
                "over limit",
                f"{amount_text(account['overLimit'], account['resource'])}{of} above "
                f"{readable(account['limit'], resource=account['resource'])}{cut}",
            )


def _origin(made: Answer | None) -> str:
    return "" if made is None else f" at {clock(made['at'])}{said_by(made['by'], clean(made['reason']))}"


def _amounts(resource: str | None, flavor: str | None) -> View:
    """The tree as lines for programs."""

    def amount(key: str, queue: Answer) -> object:
        return (account_of(queue, resource, flavor) or {}).get(key)

    keys = ("used", "guaranteed", "limit", "borrowed", "lent", "pending", "starved")
    amounts = [Column(key, partial(amount, key)) for key in keys]
    return View([Column("queue", "path"), Column("resource", lambda _: resource), *amounts], name="path")


def resources_of(queues: Sequence[Answer]) -> list[str]:
    """Resources by how many quota rows name them, most first."""
    rows = Counter(row["resource"] for q in queues for row in q["quota"])
    seen = {a["resource"] for q in queues for a in q["accounts"]}
    return [name for name, _ in rows.most_common()] + sorted(seen - rows.keys())


def main_resource(queues: Sequence[Answer]) -> str | None:
    """The resource to show when none is asked for."""
    return next(iter(resources_of(queues)), None)


def account_of(queue: Answer, resource: str | None, flavor: str | None) -> Answer | None:
    """The account of a queue for a resource, in one flavor or in all together."""
    accounts = (a for a in queue["accounts"] if a["resource"] == resource and a["flavor"] == flavor)
    return next(accounts, None)


def tree_rows(
    queues: Sequence[Answer], resource: str | None, flavor: str | None, now: datetime
) -> Iterator[Answer]:
    """A row of cells for each queue, with its name drawn as a branch. A queue without the account has no amounts."""
    for branch, queue in drawn(queues, path=itemgetter("path"), parent=itemgetter("parent")):
        account, state = account_of(queue, resource, flavor), queue["effectiveState"]
        since, jobs = queue["oldestPending"], queue["pendingWorkloads"]
        row = {
            "name": branch + queue["path"].rpartition(".")[2], "state": "" if state == "open" else f" [{state}]",
            "jobs": jobs, "oldest": ago(since, now) if since else "-", "bar": "",
        }  # fmt: skip
        if account is not None:
            starved = " !" if account["starved"] else ""
            keys = ("used", "guaranteed", "limit", "borrowed", "lent", "pending")
            said = {
                key: readable(account[key], resource=account["resource"])
                for key in keys
                if account[key] is not None
            }
            row |= {
                "use": f"{said['used']}/{said['guaranteed']}",
                "limit": said.get("limit"),
                "borrowed": f"+{said['borrowed']}" if account["borrowed"] != "0" else "-",
                "lent": f"-{said['lent']}" if account["lent"] != "0" else "-",
                "amount": f"{said['pending']}{starved}",
                "pending": (f"{said['pending']} ({jobs})" if jobs else "0") + starved,
                "bar": bar(account),
            }
        yield row


def drawn(
    entries: Iterable[Entry], *, path: Callable[[Entry], str], parent: Callable[[Entry], str | None]
) -> Iterator[tuple[str, Entry]]:
    """Every entry with the branch that stands before its name, parents first. An entry without its parent is a root."""
    entries = list(entries)
    known = set(map(path, entries))
    children: dict[str | None, list[Entry]] = {}
    for entry in entries:
        above = parent(entry)
        children.setdefault(above if above in known else None, []).append(entry)

    def walk(above: str | None, indent: str) -> Iterator[tuple[str, Entry]]:
        kids = children.get(above, [])
        for kid in kids:
            branch, below = ("└─ ", "   ") if kid is kids[-1] else ("├─ ", "│  ")
            yield "" if above is None else indent + branch, kid
            yield from walk(path(kid), "" if above is None else indent + below)

    return walk(None, "")


def bar(account: Answer) -> str:
    """Used amounts over the larger of guarantee and use, `BAR_WIDTH` characters."""
    used, guaranteed, borrowed, lent = (
        parse_sum(account[key], resource=account["resource"])
        for key in ("used", "guaranteed", "borrowed", "lent")
    )
    whole = max(guaranteed, used)
    if whole == 0:
        return ""
    edges = [min(round(BAR_WIDTH * edge / whole), BAR_WIDTH) for edge in (used - borrowed, used, used + lent)]
    lengths = (end - begin for begin, end in pairwise([0, *edges, BAR_WIDTH]))
    return "".join(sign * length for sign, length in zip("#:.-", lengths, strict=True))

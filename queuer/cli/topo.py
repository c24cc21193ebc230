"""`queuer topo`: the levels of the topology as a tree with what is free, and how many gangs of a shape fit now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from queuer.cli.client import Client
from queuer.cli.output import Printer, printed, say

_HOST = "host"
_MOST = "500"
_COLUMNS = ("DOMAIN", "LEVEL", "FREE", "OF", "NODES", "WHOLE", "OUT")
_SLOTS = ("LEVEL", "DOMAINS", "FITS IN", "GANGS", "BEST", "PODS THERE")

Answer = Mapping[str, Any]


@printed
def topo(
    *,
    slots: Annotated[
        str | None, typer.Option(metavar="SHAPE", help="How many gangs like this fit, e.g. 8xgpu:8.")
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Down to this level; default: the last above the host.")
    ] = None,
    resource: Annotated[
        str | None, typer.Option(help="Count this resource; default: a device, else cpu.")
    ] = None,
    flavor: Annotated[
        str | None, typer.Option(help="The flavor that --slots is about; default: the first.")
    ] = None,
    out: Printer,
) -> None:
    """Show what is free by domain and, with --slots, which gangs would fit, as the newest cycle left it."""
    with Client.from_env() as client:
        answers = _levels(client, down_to=level, resource=resource)
        fits = None if slots is None else client.get("/topology/slots", shape=slots, flavor=flavor)
    if not out.for_people:
        names = [_path(domain) for answer in answers for domain in answer["domains"]]
        out.answer({"levels": answers, "slots": fits}, names=names)
        return
    first = answers[0]
    out.table(_COLUMNS, [_row(*each) for each in drawn(answers)], right=_COLUMNS[2:])
    for answer in answers:
        if answer["leftOut"]:
            say(f"{answer['leftOut']} more domains of level {answer['level']} are not shown")
    say(f"{first['resource']} as of cycle {first['cycle']}. OUT: nodes cordoned or not ready")
    if fits is not None:
        out.table(_SLOTS, map(_slots, fits["rows"]), right=("DOMAINS", "FITS IN", "GANGS"))
        say(
            f"{fits['shape']} on {fits['flavor']} as of cycle {fits['cycle']}, quota aside; "
            f"with it: queuer sim shape {fits['shape']} -q QUEUE"
        )


def _levels(client: Client, *, down_to: str | None, resource: str | None) -> list[Answer]:
    """One answer a level, the widest first."""
    first = client.get("/topology", resource=resource, limit=_MOST)
    names: Sequence[str] = first["levels"]
    if down_to is None:
        wanted = [name for name in names if name != _HOST] or list(names)
    elif down_to in names:
        wanted = list(names[: names.index(down_to) + 1])
    else:
        wanted = [*names, down_to]  # the API says which there are
    more = [client.get("/topology", level=name, resource=resource, limit=_MOST) for name in wanted[1:]]
    return [first, *more]


def drawn(answers: Sequence[Answer]) -> Iterator[tuple[str, str, str, Answer]]:
    """Every domain with its name drawn as a branch, its level and the resource. Hosts hang below no domain."""
    children: dict[tuple[int, str | None], list[Answer]] = {}
    for depth, answer in enumerate(answers):
        for domain in answer["domains"]:
            children.setdefault((depth, domain["parent"]), []).append(domain)

    def walk(depth: int, path: str | None, indent: str) -> Iterator[tuple[str, str, str, Answer]]:
        kids = children.pop((depth, path), [])
        for position, kid in enumerate(kids):
            last, answer = position == len(kids) - 1, answers[depth]
            branch = "" if depth == 0 else f"{indent}{'└─ ' if last else '├─ '}"
            yield f"{branch}{kid['domain']}", answer["level"], answer["resource"], kid
            yield from walk(
                depth + 1, _path(kid), indent if depth == 0 else indent + ("   " if last else "│  ")
            )

    yield from walk(0, None, "")
    for depth, parent in sorted(children, key=str):
        for kid in children[depth, parent]:
            yield kid["domain"], answers[depth]["level"], answers[depth]["resource"], kid


def _path(domain: Answer) -> str:
    return "/".join(filter(None, (domain["parent"], domain["domain"])))


def _row(name: str, level: str, resource: str, domain: Answer) -> Sequence[object]:
    free, there = domain["free"][resource], domain["allocatable"][resource]
    out = domain["cordoned"] + domain["notReady"]
    return name, level, free, there, domain["nodes"], domain["wholeNodes"], out or "-"


def _slots(row: Answer) -> Sequence[object]:
    return (
        row["level"], row["domains"], row["fittingDomains"], row["gangs"], row["best"] or "-", row["bestPods"],
    )  # fmt: skip

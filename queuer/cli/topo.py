"""`queuer topo`: the levels of the topology as a tree with what is free, and how many gangs of a shape fit now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Any

import typer

from queuer.cli.client import Client
from queuer.cli.output import Column, Printer, clean, clock, moment, printed, say
from queuer.cli.tree import drawn
from queuer.domain.quantity import readable

_HOST = "host"
_MOST = "500"
_PARTS = ("used", "outside", "reserved", "free")
_DOMAINS = (
    Column("DOMAIN", "name"),
    Column("LEVEL", "level"),
    *(Column(title.upper(), title, right=True) for title in _PARTS),
    Column("OF", "allocatable", right=True),
    Column("NODES", "nodes", right=True),
    Column("WHOLE", "wholeNodes", right=True),
    Column("OUT", "out", right=True),
)
_SLOTS = (
    Column("LEVEL", "level"),
    Column("DOMAINS", "domains", right=True),
    Column("FITS IN", "fittingDomains", right=True),
    Column("GANGS", "gangs", right=True),
    Column("BEST", lambda row: row["best"] or "-"),
    Column("PODS THERE", "bestPods"),
)
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
    out.table(_DOMAINS, _rows(answers))
    for line in held_for(answers[-1]):
        out.line(clean(line))
    for answer in answers:
        if answer["leftOut"]:
            say(f"{answer['leftOut']} more domains of level {answer['level']} are not shown")
    say(f"{answers[0]['resource']} as of cycle {answers[0]['cycle']}. OUT: nodes cordoned or not ready")
    say(
        "USED: by pods of queues; OUTSIDE: by pods that no queue pays for; RESERVED: by nobody, and held for a job"
    )
    if fits is not None:
        out.table(_SLOTS, fits["rows"])
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


def _rows(answers: Sequence[Answer]) -> Iterator[Answer]:
    """Every domain with its name drawn as a branch, its level and the amounts of the resource."""
    domains = [
        {**domain, "level": answer["level"], "path": _path(domain), "resource": answer["resource"]}
        for answer in answers
        for domain in answer["domains"]
    ]
    for branch, domain in drawn(domains, path=itemgetter("path"), parent=itemgetter("parent")):
        resource, out = domain["resource"], domain["cordoned"] + domain["notReady"]
        parts = (*_PARTS, "allocatable")
        amounts = {part: readable(domain[part][resource], resource=resource) for part in parts}
        amounts["outside"] = "-" if amounts["outside"] == "0" else amounts["outside"]
        yield {**domain, **amounts, "name": branch + domain["domain"], "out": out or "-"}


def held_for(answer: Answer) -> Iterator[str]:
    """Each job that room is held for, with all its places in one level."""
    places: dict[str, list[str]] = {}
    for domain in answer["domains"]:
        for held in domain["heldFor"]:
            job = f"{held['namespace']}/{held['name']}" if held["name"] else f"a job of {held['queue']}"
            when = ", once its victims have left"
            if held["start"]:
                ahead = moment(held["start"]) > moment(answer["asOf"])
                when = f" from {clock(held['start'])}" if ahead else ", as room frees up"
            amount = readable(held["amounts"][answer["resource"]], resource=answer["resource"])
            places.setdefault(job + when, []).append(f"{_path(domain)} ({amount})")
    for job, there in places.items():
        yield f"reserved for {job}: {', '.join(sorted(there))}"


def _path(domain: Answer) -> str:
    return "/".join(filter(None, (domain["parent"], domain["domain"])))

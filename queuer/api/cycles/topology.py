"""`GET /topology` and `/topology/slots`: what each domain has, and which gangs fit now, as the newest cycle left it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query

from queuer.api.controller import Leader
from queuer.api.cycles import models
from queuer.api.deps import PREFIX, Asking, Latest
from queuer.api.latest_cycle import NO_DECISION
from queuer.api.models import instant
from queuer.domain.errors import NotFound
from queuer.domain.quantity import format_quantity
from queuer.solver.ask import ClusterDomains, ClusterSlots
from queuer.solver.clustermap import DomainRow, HeldFor, SlotRow

router = APIRouter(prefix=PREFIX, tags=["topology"])
MOST = 5000
"""Domains of an answer: a map of all hosts is one question, of one cycle."""
_PARTS = ("used", "outside", "reserved", "free")
T = TypeVar("T")


@router.get("/topology")
async def get_topology(
    asker: Asking,
    latest: Latest,
    leader: Leader,
    *,
    level: Annotated[str | None, Query(max_length=253, description="Default: the widest.")] = None,
    resource: Annotated[str | None, Query(max_length=253, description="Default: a device, else cpu.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 200,
) -> models.Topology:
    """The domains of one level, those with most free first, and how fragmented what is free is."""
    found = _there(await latest.ask(ClusterDomains(level=level, resource=resource), party=asker.caller.party))
    table = found.value
    rows, what = table.rows, table.resource
    totals = {part: sum(getattr(row, part) for row in rows) for part in _PARTS}
    free, largest = totals["free"], max((row.free for row in rows), default=0)
    seen = await asker.readable({held.namespace for row in rows[:limit] for held in row.held_for})
    return models.Topology(
        cycle=found.cycle,
        as_of=instant(found.at),
        levels=list(table.levels),
        level=table.level,
        resource=what,
        domains=[_domain(row, what, seen) for row in rows[:limit]],
        left_out=max(0, len(rows) - limit),
        **{part: format_quantity(total, resource=what) for part, total in totals.items()},
        largest_free=format_quantity(largest, resource=what),
        fragmentation=round(1 - largest / free, 4) if free else 0.0,
        controller=leader,
    )


@router.get("/topology/slots")
async def get_slots(
    asker: Asking,
    latest: Latest,
    leader: Leader,
    *,
    shape: Annotated[str, Query(max_length=500, description="COUNTxRESOURCE:AMOUNT,…, e.g. 8xgpu:8.")],
    level: Annotated[str | None, Query(max_length=253, description="This level alone.")] = None,
    flavor: Annotated[str | None, Query(max_length=253, description="Default: the first.")] = None,
) -> models.SlotTable:
    """How many gangs of a shape fit now at each level, quota aside; `POST /simulations` minds quota and order, too."""
    question = ClusterSlots(shape=shape, level=level, flavor=flavor)
    found = _there(await latest.ask(question, party=asker.caller.party))
    return models.SlotTable(
        cycle=found.cycle,
        as_of=instant(found.at),
        shape=shape,
        flavor=found.value.flavor,
        rows=[_slots(row, places=level is not None) for row in found.value.rows],
        controller=leader,
    )


def _there(found: T | None) -> T:
    if found is None:
        raise NotFound(NO_DECISION, hint="queuer queue ls")
    return found


def _domain(row: DomainRow, resource: str, readable: Collection[str]) -> models.Domain:
    return models.Domain.from_record(
        row,
        domain=row.path[-1],
        parent="/".join(row.parent) or None,
        **{part: {resource: getattr(row, part)} for part in ("allocatable", *_PARTS)},
        held_for=[_held_for(held, resource, readable) for held in row.held_for],
    )


def _held_for(held: HeldFor, resource: str, readable: Collection[str]) -> models.HeldFor:
    nameless = {} if held.namespace in readable else dict.fromkeys(("uid", "kind", "namespace", "name"))
    return models.HeldFor.from_record(held, amounts={resource: held.amount}, **nameless)


def _slots(row: SlotRow, *, places: bool) -> models.Slots:
    return models.Slots.from_record(
        row,
        best="/".join(row.best) or None,
        places=["/".join(place) for place in row.places[:MOST]] if places else [],
    )

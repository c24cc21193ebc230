"""`GET /topology` and `/topology/slots`: what each domain has, and which gangs fit now, as the newest cycle left it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query

from queuer.api.cycles import models
from queuer.api.deps import PREFIX, Engine, NewestCycle, Settings, one_view
from queuer.api.live.controller import controller
from queuer.api.words import instant
from queuer.domain.asked import parse_shape
from queuer.domain.errors import FieldProblem, InvalidInput, NotFound
from queuer.domain.fields import nearest
from queuer.domain.quantity import format_quantity
from queuer.solver.clustermap import ClusterMap, DomainRow, SlotRow

router = APIRouter(prefix=PREFIX, tags=["topology"])
MOST = 5000
"""Domains of an answer: a map of all hosts is one question, of one cycle."""
T = TypeVar("T")
_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")


@router.get("/topology")
async def get_topology(
    engine: Engine,
    newest: NewestCycle,
    settings: Settings,
    *,
    level: Annotated[str | None, Query(max_length=253, description="Default: the widest.")] = None,
    resource: Annotated[str | None, Query(max_length=253, description="Default: a device, else cpu.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 200,
) -> models.Topology:
    """The domains of one level, those with most free first, and how fragmented what is free is."""

    def made(number: int, at: float, there: ClusterMap) -> models.Topology:
        which = _word(level or there.levels[0], there.levels, field="level")
        what = _word(resource or _main(there.resources), there.resources, field="resource")
        rows = there.domains(which, what)
        free, largest = sum(row.free for row in rows), max((row.free for row in rows), default=0)
        return models.Topology(
            cycle=number,
            as_of=instant(at),
            levels=list(there.levels),
            level=which,
            resource=what,
            domains=[_domain(row, what) for row in rows[:limit]],
            left_out=max(0, len(rows) - limit),
            free=format_quantity(free, resource=what),
            largest_free=format_quantity(largest, resource=what),
            fragmentation=round(1 - largest / free, 4) if free else 0.0,
        )

    async with one_view(engine) as connection:
        row = await newest.read(connection)
        leader = await controller(connection, stale_after=settings.stale_after)
    return _there(await newest.map(row, made)).model_copy(update={"controller": leader})


@router.get("/topology/slots")
async def get_slots(
    engine: Engine,
    newest: NewestCycle,
    settings: Settings,
    *,
    shape: Annotated[str, Query(max_length=500, description="COUNTxRESOURCE:AMOUNT,…, e.g. 8xgpu:8.")],
    level: Annotated[str | None, Query(max_length=253, description="This level alone.")] = None,
    flavor: Annotated[str | None, Query(max_length=253, description="Default: the first.")] = None,
) -> models.SlotTable:
    """How many gangs of a shape fit now at each level, quota aside; `POST /simulations` minds quota and order, too."""

    def made(number: int, at: float, there: ClusterMap) -> models.SlotTable:
        asked = parse_shape(shape, resources=there.resources)
        of = _word(flavor or there.flavors[0], there.flavors, field="flavor")
        rows = there.slots(asked, of)
        if level is not None:
            named = _word(level, [row.level for row in rows], field="level")
            rows = [row for row in rows if row.level == named]
        told = [_slots(row, places=level is not None) for row in rows]
        return models.SlotTable(cycle=number, as_of=instant(at), shape=shape, flavor=of, rows=told)

    async with one_view(engine) as connection:
        row = await newest.read(connection)
        leader = await controller(connection, stale_after=settings.stale_after)
    return _there(await newest.map(row, made)).model_copy(update={"controller": leader})


def _there(found: T | None) -> T:
    if found is None:
        raise NotFound("no cycle is stored yet that this version reads", hint="queuer queue ls")
    return found


def _word(name: str, known: Iterable[str], *, field: str) -> str:
    names = tuple(known)
    if name not in names:
        raise InvalidInput(
            FieldProblem(
                field=field, message=f"there is no {field} {name[:60]}", hint=nearest(name[:60], names)
            )
        )
    return name


def _main(resources: Iterable[str]) -> str:
    names = tuple(resources)
    return next((name for name in names if name not in _PLAIN), "cpu")


def _domain(row: DomainRow, resource: str) -> models.Domain:
    return models.Domain(
        domain=row.path[-1],
        parent="/".join(row.parent) or None,
        nodes=row.nodes,
        cordoned=row.cordoned,
        not_ready=row.not_ready,
        allocatable={resource: format_quantity(row.allocatable, resource=resource)},
        free={resource: format_quantity(row.free, resource=resource)},
        whole_nodes=row.whole,
    )


def _slots(row: SlotRow, *, places: bool) -> models.Slots:
    return models.Slots(
        level=row.level,
        domains=row.domains,
        gangs=row.gangs,
        fitting_domains=row.fitting,
        best="/".join(row.best) or None,
        best_pods=row.slots,
        places=["/".join(place) for place in row.places[:MOST]] if places else [],
    )

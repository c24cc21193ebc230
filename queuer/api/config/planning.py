"""The report of a planned changeset: what is odd, what it takes away from whom, what the decision says to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config import models
from queuer.api.config.cautions import Cautions
from queuer.api.cycles.newest import Newest
from queuer.api.models import FieldError
from queuer.api.words import instant
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.quantity import add, format_quantity, format_resources
from queuer.domain.queue import QueueTree
from queuer.domain.workload import Workload
from queuer.solver.stored import StoredCycle
from queuer.solver.verified import UnsoundPlan
from queuer.solver.whatif import Rules, difference
from queuer.store import reads
from queuer.store.changeset import Changeset, flavors_after, queues_after, topology_after
from queuer.store.config import Config, load_config
from queuer.store.cuts import Cuts, cuts
from queuer.store.holdings import Holding
from queuer.store.stored import StoredRow

MOST_JOBS = 100
_NO_CYCLE = "no cycle is stored yet that this version reads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A sound changeset with all that a report is made of, from one view of the tables."""

    changeset: Changeset
    config: Config
    cuts: Cuts
    namespaces: frozenset[str]
    row: StoredRow | None

    @classmethod
    async def of(cls, connection: AsyncConnection, changeset: Changeset, newest: Newest) -> Seen:
        """What the tables say."""
        return cls(
            changeset=changeset,
            config=await load_config(connection),
            cuts=await cuts(connection, changeset),
            namespaces=frozenset(await reads.namespaces(connection)),
            row=await newest.read(connection),
        )


async def report(seen: Seen, newest: Newest) -> models.Report:
    """The whole report; the decision is asked in a thread."""
    config, changes = seen.config, seen.changeset.changes
    before = Rules(tree=config.tree, flavors=config.flavors, topology=config.topology)
    after = Rules(
        tree=QueueTree.of(queues_after(config, changes).values()),
        flavors=flavors_after(config, changes),
        topology=topology_after(config, changes),
    )
    cautions = Cautions(before=before, after=after, changes=changes)
    warnings = [*seen.changeset.warnings, *(row.problem for row in seen.cuts.over)]
    warnings += [*cautions.of_namespaces(seen.namespaces), *cautions.of_use()]
    asked = await newest.ask(seen.row, partial(_asked, cautions=cautions))
    found, impact = asked or ([], _NO_CYCLE)
    return models.Report(
        warnings=_errors([*warnings, *found]),
        reductions=_errors(seen.cuts.reductions),
        over_limit=[
            models.OverLimit(
                queue=row.queue,
                flavor=row.flavor,
                resource=row.resource,
                limit=format_quantity(row.limit, resource=row.resource),
                used=format_quantity(row.used, resource=row.resource),
                over=format_quantity(row.used - row.limit, resource=row.resource),
            )
            for row in seen.cuts.over
        ],
        reclaimable=[
            models.Reclaimable(
                queue=row.queue,
                flavor=row.flavor,
                resource=row.resource,
                amount=format_quantity(row.amount, resource=row.resource),
            )
            for row in seen.cuts.reclaimable
        ],
        victims=victims(seen.cuts.victims),
        impact=None if isinstance(impact, str) else impact,
        impact_missing=impact if isinstance(impact, str) else "",
    )


def _asked(
    number: int, cycle: StoredCycle, *, cautions: Cautions
) -> tuple[list[FieldProblem], models.Impact | str]:
    """What the nodes and the decision of a cycle say."""
    found = list(cautions.of_nodes([state.node for state in cycle.snapshot.nodes]))
    assert cycle.plan is not None
    try:
        made = difference(
            cycle.snapshot, cycle.plan, now=cycle.now, seed=cycle.seed, before=cautions.before, after=cautions.after,
        )  # fmt: skip
    except (UnsoundPlan, InvalidInput):
        return found, f"no sound decision on cycle {number} with these changes"
    return found, models.Impact(
        cycle=number,
        as_of=instant(cycle.now),
        starts=_listed(made.starts),
        evicted=_listed(made.evicted),
        never=_listed(made.never),
    )


def _errors(problems: Iterable[FieldProblem]) -> list[FieldError]:
    return [FieldError(field=p.field, message=p.message, hint=p.hint) for p in problems]


def _listed(found: tuple[Workload, ...]) -> models.Jobs:
    return models.Jobs(
        count=len(found),
        amounts=_sum(workload.demand for workload in found),
        jobs=[
            models.Job(uid=w.uid, kind=w.kind, namespace=w.namespace, name=w.name, queue=w.queue)
            for w in found[:MOST_JOBS]
        ],
    )


def victims(found: tuple[Holding, ...]) -> models.Jobs:
    """Those who would go, all of them."""
    held = ({resource: n for (flavor, resource), n in h.charge.items() if flavor is None} for h in found)
    return models.Jobs(
        count=len(found),
        amounts=_sum(held),
        jobs=[
            models.Job(uid=h.uid, kind=h.kind, namespace=h.namespace, name=h.name, queue=h.queue)
            for h in found
        ],
    )


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, str]:
    total: dict[str, int] = {}
    for part in parts:
        total = add(total, part)
    return format_resources(total)

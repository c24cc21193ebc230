"""The report of a planned changeset: what is odd, what it takes away from whom, what the decision says to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config import models
from queuer.api.config.cautions import Cautions, Consequences
from queuer.api.http.pointers import place
from queuer.api.latest_cycle import LatestCycle
from queuer.api.models import FieldError, instant
from queuer.domain.errors import FieldProblem, Unavailable
from queuer.domain.quantity import add, format_quantity, format_resources
from queuer.domain.queue import QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload
from queuer.solver.whatif import Difference
from queuer.store import lookup, reads
from queuer.store.changeset import Changeset, flavors_after, queues_after, topology_after
from queuer.store.config import Config, load_config
from queuer.store.cuts import Cuts, cuts
from queuer.store.drafts import Draft
from queuer.store.holdings import Holding
from queuer.store.tables import Effect

MOST_JOBS = 100
TTL = 15 * 60.0
"""Seconds for which a plan may be applied."""
_NO_CYCLE = "no cycle is stored yet that this version reads"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A sound changeset with all that a report is made of, from one view of the tables. `document`: the body that asked
    for it, in which warnings have their places; `at`: when it was seen.
    """

    at: float
    document: object
    changeset: Changeset
    config: Config
    cuts: Cuts
    namespaces: frozenset[str]

    @classmethod
    async def of(cls, connection: AsyncConnection, changeset: Changeset, *, document: object = None) -> Seen:
        """Everything from one view of the tables."""
        return cls(
            at=await lookup.now(connection),
            document=document,
            changeset=changeset,
            config=await load_config(connection),
            cuts=await cuts(connection, changeset),
            namespaces=frozenset(await reads.namespaces(connection)),
        )

    @cached_property
    def cautions(self) -> Cautions:
        """From the configuration as it is to what it would be."""
        config, changes = self.config, self.changeset.changes
        after = Rules(
            tree=QueueTree.of(queues_after(config, changes).values()),
            flavors=flavors_after(config, changes),
            topology=topology_after(config, changes),
        )
        return Cautions(before=config, after=after, changes=changes)

    def warnings(self, of_nodes: Iterable[FieldProblem]) -> list[FieldError]:
        """All that is legal and odd, with what was found about nodes."""
        found = [*self.changeset.warnings, *(row.problem for row in self.cuts.over)]
        found += [*self.cautions.of_namespaces(self.namespaces), *self.cautions.of_use(), *of_nodes]
        return _errors(found, self.document)


async def report(seen: Seen, newest: LatestCycle) -> models.Report:
    """The whole report. Without an answer about the newest cycle a change can still be planned: the report says so."""
    answer, missing = None, _NO_CYCLE
    try:
        answer = await newest.ask(Consequences(cautions=seen.cautions))
    except Unavailable as silent:
        missing = silent.message
    found = [] if answer is None else answer.value[0]
    impact = missing if answer is None else _impact(answer.cycle, answer.at, answer.value[1])
    return models.Report(
        warnings=seen.warnings(found),
        reductions=_errors(seen.cuts.reductions, seen.document),
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


async def drafted(
    seen: Seen,
    newest: LatestCycle,
    *,
    actor: str,
    source: str,
    root: str,
    effect: Effect = Effect.DRAIN,
    evict_after: float | None = None,
) -> Draft:
    """The plan with its report, which nobody has kept yet."""
    return Draft(
        id=uuid4(),
        at=seen.at,
        expires=seen.at + TTL,
        actor=actor,
        source=source,
        root=root,
        changeset=seen.changeset,
        report=(await report(seen, newest)).model_dump(mode="json"),
        effect=effect,
        evict_after=evict_after,
    )


def _impact(cycle: int, at: float, made: Difference | None) -> models.Impact | str:
    """The impact, or why there is none."""
    if made is None:
        return f"no sound decision on cycle {cycle} with these changes"
    return models.Impact(
        cycle=cycle,
        as_of=instant(at),
        starts=_listed(made.starts),
        evicted=_listed(made.evicted),
        unstartable=_listed(made.unstartable),
    )


def _errors(problems: Iterable[FieldProblem], document: object) -> list[FieldError]:
    def where(field: str) -> str | None:
        return place(field, document) if document is not None else None

    return [
        FieldError(field=p.field, message=p.message, hint=p.hint, pointer=where(p.field)) for p in problems
    ]


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

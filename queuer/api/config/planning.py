"""The report of a planned changeset: what is odd, what it takes away from whom, what the decision says to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config import models
from queuer.api.config.cautions import Cautions
from queuer.api.cycles.newest import Newest
from queuer.api.http.pointers import place
from queuer.api.models import FieldError
from queuer.api.words import instant
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.intake import refused
from queuer.domain.quantity import add, format_quantity, format_resources
from queuer.domain.queue import QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload
from queuer.solver.stored import StoredCycle
from queuer.solver.verified import UnsoundPlan
from queuer.solver.whatif import difference
from queuer.store import lookup, reads
from queuer.store.changeset import Changeset, flavors_after, queues_after, topology_after
from queuer.store.config import Config, load_config
from queuer.store.cuts import Cuts, cuts
from queuer.store.drafts import Draft
from queuer.store.holdings import Holding
from queuer.store.stored import StoredRow
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
    row: StoredRow | None

    @classmethod
    async def of(
        cls, connection: AsyncConnection, changeset: Changeset, newest: Newest, *, document: object = None
    ) -> Seen:
        """What the tables say."""
        return cls(
            at=await lookup.now(connection),
            document=document,
            changeset=changeset,
            config=await load_config(connection),
            cuts=await cuts(connection, changeset),
            namespaces=frozenset(await reads.namespaces(connection)),
            row=await newest.read(connection),
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


async def warnings(seen: Seen, newest: Newest) -> list[FieldError]:
    """What a report warns of, without the report."""
    return seen.warnings(await newest.ask(seen.row, lambda _, cycle: _of_nodes(cycle, seen.cautions)) or ())


def _of_nodes(cycle: StoredCycle, cautions: Cautions) -> list[FieldProblem]:
    return list(cautions.of_nodes([state.node for state in cycle.snapshot.nodes]))


async def report(seen: Seen, newest: Newest) -> models.Report:
    """The whole report; the decision is asked in a thread."""
    asked = await newest.ask(seen.row, partial(_asked, cautions=seen.cautions))
    found, impact = asked or ([], _NO_CYCLE)
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
    newest: Newest,
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


def _asked(
    number: int, cycle: StoredCycle, *, cautions: Cautions
) -> tuple[list[FieldProblem], models.Impact | str]:
    """What the nodes and the decision of a cycle say."""
    found = _of_nodes(cycle, cautions)
    assert cycle.plan is not None
    try:
        made = difference(
            cycle.snapshot, cycle.plan, now=cycle.now, seed=cycle.seed, before=cautions.before, after=cautions.after,
            refused=lambda workload, rules: refused(workload, rules.tree, cycle.priorities),
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

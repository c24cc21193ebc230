"""The report of a planned changeset: what is odd, what it takes away from whom, what the decision says to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config import models
from queuer.api.config.cautions import Cautions, Consequences
from queuer.api.http.pointers import place
from queuer.api.latest_cycle import NO_DECISION, LatestCycle
from queuer.api.models import FieldError, Job, instant
from queuer.domain.errors import FieldProblem, Unavailable
from queuer.domain.quantity import add, devices, format_quantity, format_resources
from queuer.domain.queue import QueueState
from queuer.domain.reasons import halting
from queuer.domain.workload import Workload
from queuer.solver.whatif import Difference
from queuer.store import lookup, reads
from queuer.store.changeset import JudgedChangeset
from queuer.store.cuts import Cuts, Over, Reclaimable, cuts
from queuer.store.engine import DatabaseUnavailable
from queuer.store.halts import Halt, WaitingJob, halts
from queuer.store.judge import waiting_in
from queuer.store.ledger import Holding

MOST_JOBS = 100
_NOT_ASKED = "a PUT asks for none: POST /changesets plans with it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A sound changeset with all that the tables tell of it, from one view of them. `at`: when that was.

    `document`: the body that asked for it, in which warnings have their places.
    """

    at: float
    document: object
    changeset: JudgedChangeset
    cuts: Cuts
    halts: tuple[Halt, ...]
    cautions: Cautions
    warnings: tuple[FieldProblem, ...]

    @classmethod
    async def of(
        cls, connection: AsyncConnection, changeset: JudgedChangeset, *, document: object = None
    ) -> Seen:
        """Everything from one view of the tables."""
        cautions = Cautions(changeset=changeset)
        taken = await cuts(connection, changeset)
        warnings = (
            *cautions.of_waiting(await waiting_in(connection, changeset.deleted)),
            *cautions.of_flavors(),
            *(row.problem for row in taken.over),
            *cautions.of_namespaces(frozenset(await reads.namespaces(connection))),
            *cautions.of_use(),
        )
        return cls(
            at=await lookup.now(connection), document=document, changeset=changeset, cuts=taken,
            halts=await halts(connection, changeset), cautions=cautions, warnings=warnings,
        )  # fmt: skip


async def report(seen: Seen, newest: LatestCycle, *, party: str, impact: bool = True) -> models.Report:
    """The whole report, or one without the impact. Without an answer about the newest cycle a change can still be
    planned: the report says so. `party`: of whom asks.
    """
    answer, missing = None, NO_DECISION
    try:
        answer = await newest.ask(Consequences(cautions=seen.cautions, impact=impact), party=party)
    except DatabaseUnavailable:
        raise
    except Unavailable as silent:
        missing = silent.message
    found = [] if answer is None else answer.value[0]
    told: models.Impact | str = _NOT_ASKED if not impact else missing
    if impact and answer is not None:
        told = _impact(answer.cycle, answer.at, answer.value[1], seen.halts)
    taken = seen.cuts
    return models.Report(
        warnings=_errors([*seen.warnings, *found], seen.document),
        reductions=_errors(taken.reductions, seen.document),
        over_limit=[models.OverLimit(**_quantities(row, "limit", "used", "over")) for row in taken.over],
        reclaimable=[models.Reclaimable(**_quantities(row, "amount")) for row in taken.reclaimable],
        victims=_jobs(taken.victims, [_held(holding) for holding in taken.victims]),
        states=[_state(halt) for halt in seen.halts],
        impact=None if isinstance(told, str) else told,
        impact_missing=told if isinstance(told, str) else "",
    )


def _impact(cycle: int, at: float, made: Difference | None, halted: Iterable[Halt]) -> models.Impact | str:
    """The impact, or why there is none."""
    if made is None:
        return f"no sound decision on cycle {cycle} with these changes"
    opened = (halt.waiting for halt in halted if halt.state is QueueState.OPEN)
    late = {job.uid: job for waiting in opened for job in waiting if job.late}.values()
    return models.Impact(
        cycle=cycle,
        as_of=instant(at),
        starts=_first(made.starts),
        evicted=_first(made.evicted),
        unstartable=_first(made.unstartable),
        unstartable_running=_first(made.unstartable_running),
        unknown=_jobs([*late], [job.demand for job in late], most=MOST_JOBS),
    )


def _state(halt: Halt) -> models.StateChange:
    running = _jobs(halt.running, [_held(holding) for holding in halt.running], most=MOST_JOBS)
    waiting = _jobs(halt.waiting, [job.demand for job in halt.waiting], most=MOST_JOBS)
    runs, waits = ((each.count, devices(each.amounts)) for each in (running, waiting))
    text = halting(halt.state, running=runs, waiting=waits, kept=halt.kept, closed=halt.closed)
    return models.StateChange(queue=halt.queue, state=halt.state, running=running, waiting=waiting, text=text)


def _errors(problems: Iterable[FieldProblem], document: object) -> list[FieldError]:
    def where(field: str) -> str | None:
        return place(field, document) if document is not None else None

    return [
        FieldError(field=p.field, message=p.message, hint=p.hint, pointer=where(p.field)) for p in problems
    ]


def _quantities(row: Over | Reclaimable, *amounts: str) -> dict[str, Any]:
    """The account of a row, with these of its amounts as Kubernetes quantities."""
    said = {name: format_quantity(getattr(row, name), resource=row.resource) for name in amounts}
    return {"queue": row.queue, "flavor": row.flavor, "resource": row.resource, **said}


def _first(found: Sequence[Workload]) -> models.Jobs:
    """All of these jobs in numbers, the first of them by name."""
    return _jobs(found, [workload.demand for workload in found], most=MOST_JOBS)


def _held(holding: Holding) -> dict[str, int]:
    return {resource: amount for (flavor, resource), amount in holding.charge.items() if flavor is None}


def _jobs(
    found: Sequence[Workload | Holding | WaitingJob],
    amounts: Iterable[Mapping[str, int]],
    *,
    most: int | None = None,
) -> models.Jobs:
    total: dict[str, int] = {}
    for part in amounts:
        total = add(total, part)
    jobs = [Job.model_validate(each, from_attributes=True) for each in found[:most]]
    return models.Jobs(count=len(found), amounts=format_resources(total), jobs=jobs)

"""Fair share: the factors by which the order compares queues, and who has what the starved lack."""

from __future__ import annotations

from queuer.api.latest_cycle import CycleAnswer
from queuer.api.models import instant
from queuer.api.queues import models
from queuer.domain.quantity import format_quantity, format_resources
from queuer.solver import shares
from queuer.solver.ask import FairShareTable


def shares_of(found: CycleAnswer[FairShareTable], root: str) -> models.FairShare:
    """All queues below one, as the newest stored cycle left them."""
    table = found.value
    return models.FairShare(
        root=root,
        items=[_queue(row) for row in table.rows],
        deficits=[
            models.Deficit(queue=queue, resource=resource, amount=format_quantity(amount, resource=resource))
            for (queue, resource), amount in table.deficits.items()
        ],
        pairs=[
            models.Pair(
                resource=pair.resource,
                starved=pair.starved,
                borrower=pair.borrower,
                amount=format_quantity(pair.amount, resource=pair.resource),
            )
            for pair in table.pairs
        ],
        cycle=found.cycle,
        as_of=instant(found.at),
    )


def _queue(found: shares.QueueShare) -> models.QueueShare:
    return models.QueueShare(
        path=found.path,
        parent=found.parent,
        weight=found.weight,
        guaranteed=format_resources(found.guaranteed),
        used=format_resources(found.used),
        past=format_resources({r: round(amount) for r, amount in found.past.items()}),
        ordered_by=found.by,
        now=_factors(found.now),
        offered=None if found.offered is None else _factors(found.offered),
        entitled=found.entitled,
    )


def _factors(found: shares.Factors) -> models.Factors:
    resource = found.resource or None
    return models.Factors(
        resource=resource,
        excess=format_quantity(found.excess, resource=found.resource),
        capacity=format_quantity(found.capacity, resource=found.resource) if resource else None,
        weight=found.weight,
        share=found.share,
        past=found.past,
        score=found.score,
    )

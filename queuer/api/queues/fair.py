"""Fair share: the factors by which the order compares queues, and who has what the starved lack."""

from __future__ import annotations

from queuer.api.queues import models
from queuer.api.words import instant
from queuer.domain.quantity import format_quantity, format_resources
from queuer.solver import shares
from queuer.solver.standing import Standing


def told(number: int, standing: Standing, root: str) -> models.FairShare:
    """Of all queues below one, as the newest stored cycle left them."""
    lacking = shares.deficits(standing, root)
    return models.FairShare(
        root=root,
        items=[_queue(standing, found) for found in shares.shares(standing, root)],
        deficits=[
            models.Deficit(queue=queue, resource=resource, amount=format_quantity(amount, resource=resource))
            for (queue, resource), amount in lacking.items()
        ],
        pairs=[
            models.Pair(
                resource=pair.resource,
                starved=pair.starved,
                borrower=pair.borrower,
                amount=format_quantity(pair.amount, resource=pair.resource),
            )
            for pair in shares.pairs(standing, lacking)
        ],
        cycle=number,
        as_of=instant(standing.now),
    )


def _queue(standing: Standing, found: shares.QueueShare) -> models.QueueShare:
    state, path = standing.state, found.path
    named = sorted({row.resource for queue in state.book.tree for row in queue.quota})
    past = standing.state.snapshot.past.get(path, {})
    return models.QueueShare(
        path=path,
        parent=state.book.tree[path].parent or "",
        weight=state.book.tree[path].weight,
        guaranteed=format_resources({r: state.book.guaranteed(path, (None, r)) for r in named}),
        used=format_resources({r: state.claimed.used(path, (None, r)) for r in named}),
        past=format_resources({r: round(amount) for r, amount in past.items()}),
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

"""From records of the store to answers about queues."""

from __future__ import annotations

from queuer.api.latest_cycle import CycleAnswer
from queuer.api.models import instant
from queuer.api.queues import models
from queuer.domain.access import ACCESS
from queuer.domain.document import POLICY
from queuer.domain.outside import total
from queuer.domain.quantity import Resources, devices, format_quantity, format_resources
from queuer.domain.queue import QueueState
from queuer.domain.reasons.state_sentences import left_of_guarantee
from queuer.domain.routing import export_routing
from queuer.solver.ask import FairShareTable
from queuer.store.config import ObjectKind
from queuer.store.origins import Closing, Origins, over_limit
from queuer.store.usage import Amounts, QueueView, TreeView, amounts_of


def queues(view: TreeView, origins: Origins) -> dict[str, models.Queue]:
    """All queues with their amounts by path, each followed by all below it."""
    return {path: _queue(view, view.queues[path], origins) for path in sorted(view.queues, key=place)}


def place(path: str) -> tuple[str, ...]:
    """Its place among all paths: parents before children, siblings by name, a queue with all below it together."""
    return tuple(path.split("."))


def _queue(view: TreeView, found: QueueView, origins: Origins) -> models.Queue:
    queue, tree = found.queue, view.config.tree
    state = tree.effective_state(queue.path)
    closed = next((p for p in tree.lineage(queue.path) if p in tree and tree[p].state is state), queue.path)
    beside = total(view.outside) if queue.parent is None else None
    # No flavor makes up for another: of these resources the sum that is left says nothing.
    split = {own.resource for own in found.amounts if own.flavor and own.guaranteed}
    return models.Queue.from_record(
        queue,
        leaf=tree.is_leaf(queue.path),
        effective_state=state,
        closed=None if state is QueueState.OPEN else _origin(origins.closed.get(closed)),
        managed_by=view.config.writers.get((ObjectKind.QUEUE, queue.path)),
        namespaces=tree.namespaces(queue.path),
        policy=POLICY.show(tree.policy(queue.path)),
        access=ACCESS.show(tree.access(queue.path)),
        placement=export_routing(queue.placement),
        accounts=[
            models.Account.from_record(
                account,
                starved=account.starved > 0,
                over_limit=over_limit(own),
                cut=_origin(origins.cut.get((queue.path, (account.flavor, account.resource)))),
                outside=None if beside is None or account.flavor else beside.get(account.resource, 0),
                remainder=None if account.resource in split else _remainder(own, found.smallest),
            )
            for own, account in zip(found.amounts, amounts_of(view, found), strict=True)
        ],
        pending_workloads=found.waiting,
        unstartable_workloads=found.unstartable,
        held_workloads=found.held,
        admitted_workloads=found.admitted,
        oldest_pending=found.oldest,
        starved_since=found.starved_since,
    )


def _remainder(own: Amounts, smallest: Resources) -> str | None:
    left, asks = own.guaranteed - own.used, smallest.get(own.resource, 0)
    if own.flavor is not None or not 0 < left < asks:
        return None
    told = [devices(format_resources({own.resource: amount})) for amount in (left, asks)]
    return left_of_guarantee(*told)


def _origin(made: Closing | None) -> models.Origin | None:
    return None if made is None else models.Origin.from_record(made, by=made.actor)


def fair_share(found: CycleAnswer[FairShareTable], root: str) -> models.FairShare:
    """The queues below one as the order compares them, and who has what starved queues lack."""
    table = found.value
    return models.FairShare(
        root=root,
        items=[
            models.QueueShare.from_record(row, past={r: round(amount) for r, amount in row.past.items()})
            for row in table.rows
        ],
        deficits=[
            models.Deficit(queue=queue, resource=resource, amount=format_quantity(amount, resource=resource))
            for (queue, resource), amount in table.deficits.items()
        ],
        pairs=[models.Pair.from_record(pair) for pair in table.pairs],
        cycle=found.cycle,
        as_of=instant(found.at),
    )

"""Rows for room that is kept, node by node: what those who would still run at the start of a reservation may take of
its nodes, and what who evicts nobody leaves to who leaves anyway.

Settled gangs leave a reservation whole or take no more there than they do now, but for those that may displace it; what
victims leave on the place of a hold is its owner's first. The one that comes on top leaves enough on the nodes that it
takes, unless it may displace the reservation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from queuer.solver.cpsat.data import Limits
from queuer.solver.cpsat.proto import Terms
from queuer.solver.ends import end_of

if TYPE_CHECKING:
    from queuer.solver.cpsat.model import Model


def limit_by_reservations(model: Model) -> None:
    """Add the rows of all reservations to the model."""
    frees = model.frees() if model.data.limits else {}
    for one in model.data.limits:
        lasting = _lasting(model, one)
        settled, new = ([i for i in lasting if (i < model.data.others) == old] for old in (True, False))
        barred = [i for i in settled if model.data.items[i].workload.uid not in one.displacers]
        going = {
            uid for uid, c in model.data.victims().items() if model.data.board.outlasts(c.hold, one.start)
        }
        for node in (n for n in model.data.nodes if n in one.settled):
            for column in range(len(one.settled[node])):
                left = dict[int, int]()
                for uid, amount in frees.get((node, column), ()):
                    if uid in going:
                        left |= model.gone(uid, times=-amount)
                taken, pods, more = (_taken(model, items, node, column) for items in (settled, barred, new))
                high = int(one.settled[node][column])
                _row(model, {**taken, **left}, pods=pods, high=high)
                if left and node in one.lacks and (lack := int(one.lacks[node][column])):
                    same = int(one.takes[node][column]) if node in one.takes else 0
                    _keep(model, taken, left, pods=pods, high=high - lack, same=same)
                if one.asked is not None:
                    high = int(one.asked[node][column])
                    _row(model, {**taken, **more, **left}, pods=more, high=high)


def limit_by_vacating(model: Model) -> None:
    """On the nodes of a gang that evicts nobody all have room while those stay who leave anyway."""
    data = model.data
    if not data.modest:
        return
    frees, everyone = model.frees(), range(len(data.items))
    for node in data.nodes:
        for column, amount in enumerate(data.board.vacated[node].tolist()):
            if pods := _taken(model, [data.others], node, column) if amount else {}:
                gone = {v: -n for uid, n in frees.get((node, column), ()) for v in model.gone(uid)}
                terms = {**_taken(model, everyone, node, column), **gone}
                _row(model, terms, pods=pods, high=int(data.later[node, column]) - amount)


def _lasting(model: Model, one: Limits) -> list[int]:
    """Items that would still run when the reservation starts."""
    now = model.data.board.time
    ends = [None if item.bound else end_of(item.workload, start=now) for item in model.data.items]
    return [i for i, end in enumerate(ends) if end is None or end > one.start]


def _taken(model: Model, items: Sequence[int], node: int, column: int) -> dict[int, int]:
    """What these take of a node, as terms."""
    return {
        model.x[i, p, node]: amount
        for i in items
        for p, part in enumerate(model.data.items[i].parts)
        for at, amount in zip(part.need.columns.tolist(), part.need.amounts.tolist(), strict=True)
        if at == column and (i, p, node) in model.x
    }


def _keep(model: Model, taken: Terms, left: Terms, *, pods: Collection[int], high: int, same: int) -> None:
    """They leave the place whole once the victims have gone, or take no more than they do now, whoever goes."""
    whole = model.rows.boolean()
    beyond = max(_most(model, {**taken, **left}) - high, 0)
    _row(model, {**taken, **left, whole: beyond}, pods=pods, high=high + beyond)
    _row(model, {**taken, whole: -max(_most(model, taken) - same, 0)}, pods=pods, high=same)


def _row(model: Model, terms: Terms, *, pods: Collection[int], high: int) -> None:
    """The row holds if there are any of these pods."""
    rows = model.rows
    most = _most(model, terms)
    if most <= high or not pods:
        return
    used = rows.boolean()
    for variable in pods:
        rows.row({variable: 1, used: -rows.bounds[variable][1]}, high=0)
    rows.row({**terms, used: most - high}, high=most)


def _most(model: Model, terms: Terms) -> int:
    return sum(c * model.rows.bounds[v][c > 0] for v, c in terms.items())

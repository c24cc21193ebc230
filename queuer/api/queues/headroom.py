"""How much one job of a queue may start now, and what keeps it from more: on the newest stored cycle."""

from __future__ import annotations

from collections.abc import Iterator

from queuer.api.queues import models
from queuer.api.words import instant
from queuer.domain.asked import parse_amounts
from queuer.domain.flavors import allowed_flavors
from queuer.domain.quantity import Resources, format_quantity, format_resources
from queuer.domain.queue import QueueState
from queuer.domain.workload import PodSet
from queuer.solver.headroom import Bound, Cap, Headroom, headroom, own, pod_of
from queuer.solver.standing import Standing

FLAVORS, RESOURCES = 4, 4
"""Of how many at most is told."""
_NOT_ASKED = ("pods", "ephemeral-storage")


def told(number: int, standing: Standing, path: str, shape: str | None) -> models.Headroom | None:
    """The answer for a queue; None where the cycle did not know it. Raises InvalidInput for a wrong shape."""
    tree = standing.state.book.tree
    if path not in tree:
        return None
    given = None if shape is None else parse_amounts(shape, resources=standing.state.nodes.resources)
    open_ = tree.is_leaf(path) and tree.effective_state(path) is QueueState.OPEN
    rows = [row for pod in _pods(standing, path, given) for row in _rows(standing, path, pod, starts=open_)]
    if not tree.is_leaf(path):
        text = [f"{path} takes no jobs itself; ask for one of the leaves below it."]
    elif not open_:
        text = [f"{path} is {tree.effective_state(path)}: nothing new starts there."]
    else:
        text = [_sentence(path, row) for row in rows] or [f"{path} allows no flavor that has a node."]
    return models.Headroom(
        queue=path, text=" ".join(text), rows=rows, cycle=number, as_of=instant(standing.now)
    )


def _pods(standing: Standing, path: str, given: Resources | None) -> list[Resources]:
    """The pod that is asked about, else one for each resource that rows on the path name, else for each there is."""
    if given is not None:
        return [given]
    tree, nodes = standing.state.book.tree, standing.state.nodes
    named = [row.resource for queue in tree.lineage(path) for row in tree[queue].quota]
    names = dict.fromkeys(name for name in named or nodes.resources if name not in _NOT_ASKED)
    return [pod_of(name) for name in names if name in nodes.column][:RESOURCES]


def _rows(standing: Standing, path: str, pod: Resources, *, starts: bool) -> Iterator[models.HeadroomRow]:
    state = standing.state
    probe = PodSet(name="main", count=1, requests=pod)
    flavors = allowed_flavors(probe, queue=path, tree=state.book.tree, flavors=state.snapshot.flavors)
    for flavor in [f for f in flavors if state.nodes.in_flavor[f].any()][:FLAVORS]:
        found = headroom(standing, path, pod, flavor=flavor, levels=starts)
        for resource in pod:
            if resource != "pods" or len(pod) == 1:
                yield _row(standing, path, resource, found, starts=starts)


def _row(
    standing: Standing, path: str, resource: str, found: Headroom, *, starts: bool
) -> models.HeadroomRow:
    def text(amount: int) -> str:
        return format_quantity(amount, resource=resource)

    guaranteed, used = own(standing, path, found.flavor, resource)
    may, unused = found.pods * found.requests[resource], max(0, guaranteed - used)
    return models.HeadroomRow(
        resource=resource,
        flavor=found.flavor,
        pod=format_resources(found.requests),
        guaranteed=text(guaranteed),
        used=text(used),
        own=text(unused),
        borrowable=text(max(0, may - unused)),
        free=text(found.free[resource]),
        rooms=[_room(bound) for bound in found.bounds if bound.account[1] == resource],
        pods=found.pods if starts else None,
        may_start_now=text(may) if starts else None,
        capped_by=found.cap if starts else None,
        ancestor=found.ancestor if starts else None,
        largest_gang=dict(found.levels),
    )


def _room(bound: Bound) -> models.Room:
    flavor, resource = bound.account
    return models.Room(
        queue=bound.queue,
        flavor=flavor,
        limit=format_quantity(bound.limit, resource=resource),
        room=format_quantity(bound.room, resource=resource),
        live=bound.live,
    )


def _sentence(path: str, row: models.HeadroomRow) -> str:
    where = "" if row.flavor == "default" else f" on {row.flavor}"
    why = {
        Cap.LIMIT: f"the limit of {row.ancestor} is the cap",
        Cap.CAPACITY: "free capacity is the cap",
        Cap.LINE: "its order is strict, and others wait there already",
        Cap.PLACEMENT: "more is free, but not where one job could use it now",
        None: "",
    }[row.capped_by]
    borrows = f", {row.borrowable} of it borrowed" if row.borrowable != "0" else ""
    gangs = ", ".join(f"{pods} in one {level.rpartition('/')[2]}" for level, pods in row.largest_gang.items())
    inside = f" Largest gang: {gangs}." if gangs and row.pods else ""
    each = ", ".join(f"{amount} {name}" for name, amount in row.pod.items() if name != "pods")
    return f"{path} may start {row.may_start_now} {row.resource}{where} now{borrows}, in pods of {each}; {why}.{inside}"

"""How much one job of a queue may start now, and what keeps it from more: on the newest stored cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from queuer.api.queues import models
from queuer.api.words import instant
from queuer.domain.asked import parse_amounts
from queuer.domain.fields import format_duration
from queuer.domain.flavors import allowed_flavors
from queuer.domain.per_user import Share
from queuer.domain.quantity import Resources, format_quantity, format_resources
from queuer.domain.queue import QueueState, QueueTree
from queuer.domain.workload import PodSet
from queuer.solver.headroom import Bound, Cap, Headroom, headroom, own, pod_of
from queuer.solver.standing import Standing

FLAVORS, RESOURCES = 4, 4
"""Of how many at most is told."""
NAMED = 3
"""Of how many queues that borrow the sentence has the names."""
_NOT_ASKED = ("pods", "ephemeral-storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Of whose job it is asked. `groups`: None = not known."""

    user: str
    groups: tuple[str, ...] | None


def told(number: int, standing: Standing, path: str, shape: str | None, who: Who) -> models.Headroom | None:
    """The answer for a queue; None where the cycle did not know it. Raises InvalidInput for a wrong shape."""
    tree = standing.state.book.tree
    if path not in tree:
        return None
    given = None if shape is None else parse_amounts(shape, resources=standing.state.nodes.resources)
    leaf = tree.is_leaf(path)
    rows = [row for pod in _pods(standing, path, given) for row in _rows(standing, path, pod, who, leaf=leaf)]
    say = _sentence if leaf else _sentence_below
    text = [say(path, row) for row in rows] or [f"{path} allows no flavor that has a node."]
    if not leaf:
        text.insert(0, f"{path} takes no jobs itself: they go to the leaves below it.")
    elif not rows and (state := tree.effective_state(path)) is not QueueState.OPEN:
        text = [f"{path} is {state}: nothing new starts there."]
    text += _asked_of_jobs(tree, path, who) if leaf else ()
    return models.Headroom(
        queue=path, text=" ".join(text), rows=rows, cycle=number, as_of=instant(standing.now)
    )


def _asked_of_jobs(tree: QueueTree, path: str, who: Who) -> Iterator[str]:
    """What a job must keep to beside its size."""
    access = tree.access(path)
    if who.groups is not None and not access.admits(who.user, who.groups):
        yield f"{who.user} is not among those who may use it."
    if access.max_runtime is not None:
        yield f"Jobs must promise to end within {format_duration(access.max_runtime)} (maxRuntime)."


def _pods(standing: Standing, path: str, given: Resources | None) -> list[Resources]:
    """The pod that is asked about, else one for each resource that rows on the path name, else for each there is."""
    if given is not None:
        return [given]
    tree, nodes = standing.state.book.tree, standing.state.nodes
    named = [row.resource for queue in tree.lineage(path) for row in tree[queue].quota]
    names = dict.fromkeys(name for name in named or nodes.resources if name not in _NOT_ASKED)
    return [pod_of(name) for name in names if name in nodes.column][:RESOURCES]


def _rows(
    standing: Standing, path: str, pod: Resources, who: Who, *, leaf: bool
) -> Iterator[models.HeadroomRow]:
    state = standing.state
    probe = PodSet(name="main", count=1, requests=pod)
    flavors = allowed_flavors(probe, queue=path, tree=state.book.tree, flavors=state.snapshot.flavors)
    for flavor in [f for f in flavors if state.nodes.in_flavor[f].any()][:FLAVORS]:
        found = headroom(standing, path, pod, flavor=flavor, user=who.user)
        for resource in pod:
            if resource != "pods" or len(pod) == 1:
                yield _row(standing, path, resource, found, leaf=leaf)


def _row(standing: Standing, path: str, resource: str, found: Headroom, *, leaf: bool) -> models.HeadroomRow:
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
        rooms=[
            *(_room(bound) for bound in found.bounds if bound.account[1] == resource),
            *(_share(share) for share in found.shares if share.resource == resource),
        ],
        pods=found.pods if leaf else None,
        may_start_now=text(may) if leaf else None,
        below=None if leaf else text(may),
        capped_by=found.cap,
        ancestor=found.ancestor,
        largest_gang=dict(found.levels),
        reclaimable=text(found.reclaimable * found.requests[resource]),
        reclaimed_from=list(found.borrowers),
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


def _share(share: Share) -> models.Room:
    return models.Room(
        queue=share.queue,
        flavor=None,
        limit=format_quantity(share.limit, resource=share.resource),
        room=format_quantity(share.room, resource=share.resource),
        live=False,
        per_user=True,
    )


_WHY = {
    Cap.LIMIT: "the limit of {} is the cap",
    Cap.PER_USER: "what one user may have in {} (perUser) is the cap",
    Cap.HELD: "{} is held: nothing new starts there",
    Cap.DRAINING: "{} is draining: nothing new starts there",
    Cap.CAPACITY: "free capacity is the cap",
    Cap.LINE: "its order is strict, and others wait there already",
    Cap.PLACEMENT: "more is free, but not where one job could use it now",
}


def _sentence(path: str, row: models.HeadroomRow) -> str:
    borrows = f", {row.borrowable} of it borrowed" if row.borrowable != "0" else ""
    gangs = ", ".join(f"{pods} in one {level}" for level, pods in row.largest_gang.items())
    inside = f" Largest gang: {gangs}." if gangs and row.pods else ""
    each = ", ".join(f"{amount} {name}" for name, amount in row.pod.items() if name != "pods")
    amount = f"{row.may_start_now} {_what(row)} now{borrows}, in pods of {each}"
    if row.reclaimable != "0":
        amount += (
            f", and up to {row.reclaimable} more by taking back what {_names(row.reclaimed_from)} borrows"
        )
    return f"{path} may start {amount}; {_WHY[row.capped_by].format(row.ancestor)}.{inside}"


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - NAMED
    return ", ".join(paths[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _sentence_below(_: str, row: models.HeadroomRow) -> str:
    why = _WHY[row.capped_by].format(row.ancestor)
    return f"All of them together may start {row.below} {_what(row)} now at most; {why}."


def _what(row: models.HeadroomRow) -> str:
    return row.resource if row.flavor == "default" else f"{row.resource} on {row.flavor}"

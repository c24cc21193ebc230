"""Pods that no queue pays for, as the overview tells them: who they are, and when they are somebody's matter.

Amounts are for everybody. An owner is named to those who see the jobs of its namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

from queuer.api.identity.rights import Asker
from queuer.api.models import Amounts, Model
from queuer.domain.outside import Outside, total
from queuer.domain.quantity import NOTHING, Resources, add, devices
from queuer.domain.queue import ROOT
from queuer.domain.reasons import be, plural
from queuer.store.usage import TreeView

NAMES = 2
"""Owners that one line names."""


class OutsidePods(Model):
    """The pods of one owner, or of `owners` together, who have no names then. `system`: pods of DaemonSets and of
    namespaces `kube-*`, which every cluster has.
    """

    namespace: str | None = None
    kind: str | None = None
    name: str | None = None
    owners: int
    system: bool
    pods: int
    amounts: Amounts


async def shown(found: Iterable[Outside], asker: Asker) -> list[OutsidePods]:
    """The owners as this caller may have them. It asks for rights, so hold no connection."""
    known = tuple(found)
    readable = await asker.readable({each.namespace for each in known if each.name})
    nobody = {"namespace": None, "kind": None, "name": None}
    return [
        OutsidePods.from_record(each, **({} if each.name and each.namespace in readable else nobody))
        for each in known
    ]


def in_the_way(view: TreeView, free: Mapping[str, int]) -> Iterator[tuple[str, bool]]:
    """Resources of which pods outside the queues, system pods aside, hold what a queue is guaranteed or a job lacks.

    The flag: jobs wait for room alone, ask for more of it than is left, and these pods hold more of it than that.
    `free`: by resource, what is left. More may be guaranteed than there is: then all that there is is guaranteed.
    """
    held = total(each for each in view.outside if not each.system)
    asked = reduce(add, (group.amounts for group in view.waiting if group.admissible), NOTHING)
    for amounts in view.queues[ROOT].amounts:
        resource, there = amounts.resource, held.get(amounts.resource, 0)
        if amounts.flavor is not None or resource not in free or resource == "pods" or not there:
            continue
        lacked = free[resource] < min(asked.get(resource, 0), there)
        whole = view.capacity.get((None, resource), 0)
        if lacked or whole - there < min(amounts.guaranteed, whole):
            yield resource, lacked


def told_of(found: Sequence[Outside], resources: Sequence[str], told: Sequence[OutsidePods]) -> str:
    """The line about these resources. `told`: the same owners in the same order, as the caller may have them."""
    rows = [
        (each, row)
        for each, row in zip(found, told, strict=True)
        if not each.system and any(each.amounts.get(resource) for resource in resources)
    ]
    held: Resources = total(each for each, _ in rows)
    amounts = devices({resource: held[resource] for resource in resources})
    named = [
        f"{row.kind} {row.namespace}/{row.name} ({plural(row.pods, 'pod')})" for _, row in rows if row.name
    ]
    others = sum(each.owners for each, _ in rows) - len(named[:NAMES])
    who = ", ".join(named[:NAMES]) + (f" and {plural(others, 'other')}" if others and named else "")
    return f"{amounts} {be(amounts.partition(' ')[0])} used by pods that no queue pays for" + (
        who and f": {who}"
    )

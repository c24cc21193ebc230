"""Sentences about nodes: the domain that comes closest and what it lacks, or why no node counts.

Parameters have amounts as people read them. `queuer.domain.reasons.table` says which token uses which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

from queuer.domain.nodes import DEFAULT_FLAVOR
from queuer.domain.quantity import amounts_text
from queuer.domain.reasons.amounts import be, plural
from queuer.domain.reasons.quota_sentences import QuotaParams, evictable


class Need(TypedDict, total=False):
    """The need of a pod set. `per`: of each pod; `level`: the narrowest that it needs to be inside."""

    podSet: str
    count: int
    per: Mapping[str, str]
    level: str
    atLeast: bool


class PlaceParams(Need, total=False):
    """The pod set that is shortest of room, and the `domain` that has most for it.

    `fits`, `missing`: pods. `unstartable`: so it is with every node idle. `sets`: all pod sets, if each fits alone;
    `together`: the level of the domain that all of them need. `largest`: the most that one node has, of what a pod
    asks more of. With `evictable` they are `QuotaParams` instead.
    """

    evictable: str
    domain: str
    fits: int
    missing: int
    unstartable: bool
    sets: Sequence[Need]
    together: str
    largest: Mapping[str, str]


class NoNodeParams(TypedDict, total=False):
    """A pod set that no node accepts as it is. `nodes`: how many would, were they well; `flavors`: those allowed.

    `cordoned`, `notReady`, `avoided`: why these nodes do not count. `selector`: labels that no node has; `taints`: keys
    that the pods do not tolerate.
    """

    queue: str
    podSet: str
    flavors: Sequence[str]
    nodes: int
    cordoned: int
    notReady: int
    avoided: int
    selector: Sequence[str]
    taints: Sequence[str]


class JobParams(TypedDict, total=False):
    """The faults of a job. `fields`: those that cannot be read; `values`: by field a legal one, "" = none at all;
    `also`: further faults; `nearest`: names that were perhaps meant; `highest`: the highest priority that the queue
    allows; `runs`: the job runs all the same, and no queue counts it.
    """

    level: str
    levels: Sequence[str]
    field: str
    label: str
    fields: Sequence[str]
    values: Mapping[str, str]
    queue: str
    namespace: str
    user: str
    maxRuntime: str
    highest: int
    nearest: Sequence[str]
    also: Sequence[Mapping[str, object]]
    runs: bool


def lacks_place(p: PlaceParams) -> str:
    """The closest domain lacks slots for one pod set, or room for all sets together; or what may be evicted for it."""
    if "evictable" in p:
        return evictable(cast(QuotaParams, p))
    if p["missing"] or "sets" not in p:
        return f"{_needs(p)}; {_fit(p)}."
    text = "; ".join(_needs(row) for row in p["sets"])
    if "together" in p:
        text += f"; all of these in one {p['together']}"
    if p.get("unstartable"):
        return f"{text}: there is room for each alone, not for all together, not even with every node idle."
    return f"{text}: there is room for each alone, none was found for all together."


def _needs(p: Need) -> str:
    each = amounts_text(p["per"])
    least = "at least " if p.get("atLeast") else ""
    text = f"{p['podSet']} needs room for {least}{plural(p['count'], 'pod')}{each and f' of {each}'}"
    return f"{text} in one {p['level']}" if "level" in p else text


def _fit(p: PlaceParams) -> str:
    """How many pods fit, where most do."""
    level, most, idle = p.get("level"), p["fits"], p.get("unstartable", False)
    usable = "" if idle else "usable "
    if level is not None and "domain" not in p:
        return f"no {usable}node carries the label of level {level}"
    if not most:
        anywhere = f"in any {level}" if level else f"on any {usable}node"
        text = f"{'even with every node idle none would fit' if idle else 'none fits'} {anywhere}"
        largest = amounts_text(p.get("largest", {}))
        return f"{text}; the largest has {largest}" if largest else text
    where = f"in the best {level}, {p['domain']}" if level else f"on all {usable}nodes together"
    if idle:
        return f"even with every node idle {most} would fit {where}, {p['missing']} would be missing"
    return f"{most} {'fits' if most == 1 else 'fit'} {where}, {p['missing']} {be(p['missing'])} missing"


def no_usable_node(p: NoNodeParams) -> str:
    """Every node that would do is out of use, or there is none."""
    if "cordoned" not in p:
        if not p["flavors"]:
            return "The cluster has no nodes."
        flavors = ", ".join(p["flavors"])
        return f"The cluster has no node of the flavors that {p['queue']} allows: {flavors}."
    counts = {
        "cordoned": p["cordoned"],
        "not ready": p["notReady"],
        "avoided after a failed landing": p["avoided"],
    }
    causes = [(n, cause) for cause, n in counts.items() if n]
    if p["nodes"] == 1:
        return f"The only node for {p['podSet']} is {causes[0][1]}."
    told = ", ".join(f"{n} {cause}" for n, cause in causes)
    return f"None of the {p['nodes']} nodes for {p['podSet']} can be used: {told}."


def no_flavor(p: NoNodeParams) -> str:
    """No node accepts the pod set, even if all were well."""
    flavors, nodes = p["flavors"], p["nodes"]
    if not flavors:
        return f"{p['queue']} allows no flavor for all that {p['podSet']} asks for."
    of = "" if list(flavors) == [DEFAULT_FLAVOR] else f" of {', '.join(flavors)}"
    them = f"The only node{of} does not accept" if nodes == 1 else f"None of the {nodes} nodes{of} accepts"
    why = ""
    if "selector" in p:
        why = f": none has the label {', '.join(p['selector'])}"
    elif "taints" in p:
        why = f": it does not tolerate {', '.join(p['taints'])}"
    return f"{them} the selectors and tolerations of {p['podSet']}{why}."


def no_level(p: JobParams) -> str:
    """The topology has no level of that name."""
    return f"There is no topology level {p['level']}; levels: {', '.join(p['levels'])}."

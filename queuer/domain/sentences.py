"""The sentence of a reason, made of its token and figures. Parameters are as they are shown: amounts as quantities.

What a job lacks is told with numbers; the queue, domain or job that it is about by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from queuer.domain.nodes import DEFAULT_FLAVOR
from queuer.domain.tokens import Token

Params = Mapping[str, Any]
BOUND = "jobs that start when others have left"
"""Whom bound gangs are called before those who do not know them."""


def sentence(token: Token, params: Params) -> str:
    """What people read; empty where the parameters are none that this token is told with."""
    form = FORMS.get(token)
    try:
        return form(params) if form is not None else ""
    except (AttributeError, KeyError, TypeError):
        return ""


# Quota


def _row(p: Params) -> str:
    """`used + held - leaving + kept + asks > limit`."""
    if "limit" not in p:
        return _entitlement(p)
    text = f"{p['queue']} uses {p['used']} of {p['limit']} {_account(p)} ({_limit(p)})"
    if "leaving" in p:
        text += f", {p['leaving']} of these {_be(p['leaving'])} leaving"
    if p["held"] != "0":
        text += f", {p['held']} more {_be(p['held'])} held for {BOUND}"
    if "kept" in p:
        lent = "it" if p["kept"] == "1" else "them"
        text += f", {p['kept']} {_be(p['kept'])} kept for queues that do not lend {lent}"
    return f"{text}; this job {_asks(p)} {p['asks']}."


def evictable(p: Params) -> str:
    """What a gang inside its guarantee may evict, and what it may not yet."""
    whose = ", ".join(f"{row['amount']} from {row['queue']}" for row in p["from"])
    text = f"{p['queue']} uses {p['used']} of its guaranteed {p['guaranteed']} {_account(p)} and may claim {p['left']} "
    text += f"more. This job asks {p['asks']}: {p['free']} {_be(p['free'])} left by quota, "
    text += f"{p['evictable']} may be evicted for it{whose and f' ({whose})'}"
    if "wait" in p:
        text += f", {p['notYet']} more when their minRuntime is over, the first in {p['wait']} s"
    return f"{text}."


def _exceeds(p: Params) -> str:
    """Larger by itself than what there could be at most."""
    if "asked" in p:
        asked = ", ".join(f"{amount} {resource}" for resource, amount in p["asked"].items())
        text = f"this job {_asks(p)} {asked or 'for pods alone'}; {p['queue']} is guaranteed none of that."
        return f"Work that is not preemptible starts only inside a guarantee: {text}"
    if "limit" not in p:
        return _entitlement(p)
    text = f"{_asks(p).capitalize()} {p['asks']} {_account(p)}; "
    if "kept" in p:
        return text + _unlent(p)
    most = "the cluster has" if p.get("live") else f"{p['queue']} may never use more than"
    return f"{text}{most} {p['limit']}."


def _unlent(p: Params) -> str:
    """Others do not lend what it would take, though nothing runs at all."""
    text = f"even when nothing runs {p['left']} of the {p['limit']} of {p['queue']} ({_limit(p)}) "
    text += f"{_be(p['left'])} left, as {p['kept']} {_be(p['kept'])} not lent. "
    text += f"It could start if {p['missing']} more were lent"
    return text + (f", or if it asked for {p['left']} at most." if p["left"] != "0" else ".")


def _entitlement(p: Params) -> str:
    """Work that nobody may evict does not borrow."""
    text = f"{p['queue']} is guaranteed {p['guaranteed']} {_account(p)}"
    if "used" in p:
        text = f"{p['queue']} uses {p['used']} of its guaranteed {p['guaranteed']} {_account(p)}"
    if p.get("held", "0") != "0":
        text += f", {p['held']} more {_be(p['held'])} held for {BOUND}"
    return f"Work that is not preemptible does not borrow: {text}; this job {_asks(p)} {p['asks']}."


def _account(p: Params) -> str:
    """The resource, with its flavor where there are several to tell apart."""
    flavor = p.get("flavor", DEFAULT_FLAVOR)
    return str(p["resource"]) if flavor == DEFAULT_FLAVOR else f"{p['resource']} on {flavor}"


def _limit(p: Params) -> str:
    return "the live capacity" if p.get("live") else "the limit"


def _asks(p: Params) -> str:
    """Figures are those of the smallest size."""
    return "asks at least" if p.get("atLeast") else "asks"


# Nodes


def _place(p: Params) -> str:
    """What the closest domain lacks: slots for the pod set that is shortest of them, or room for all sets."""
    if p["missing"] or "sets" not in p:
        return f"{_needs(p)}; {_fit(p)}."
    text = "; ".join(_needs(row) for row in p["sets"])
    if "together" in p:
        text += f"; all of these in one {p['together']}"
    if p.get("idle"):
        return f"{text}: there is room for each alone, not for all together, not even with every node idle."
    return f"{text}: there is room for each alone, none was found for all together."


def _needs(p: Params) -> str:
    each = ", ".join(f"{amount} {resource}" for resource, amount in p["per"].items())
    least = "at least " if p.get("atLeast") else ""
    text = f"{p['podSet']} needs room for {least}{_count(p['count'], 'pod')}{each and f' of {each}'}"
    return f"{text} in one {p['level']}" if "level" in p else text


def _fit(p: Params) -> str:
    """How many pods fit, where most do."""
    level, most, idle = p.get("level"), p["fits"], p.get("idle", False)
    usable = "" if idle else "usable "
    if level is not None and "domain" not in p:
        return f"no {usable}node carries the label of level {level}"
    if not most:
        anywhere = f"in any {level}" if level else f"on any {usable}node"
        return f"{'even with every node idle none would fit' if idle else 'none fits'} {anywhere}"
    where = f"in the best {level}, {p['domain']}" if level else f"on all {usable}nodes together"
    if idle:
        return f"even with every node idle {most} would fit {where}, {p['missing']} would be missing"
    return f"{most} {'fits' if most == 1 else 'fit'} {where}, {p['missing']} {_be(p['missing'])} missing"


def _unavailable(p: Params) -> str:
    """Every node that would do is out of use, or there is none."""
    if "cordoned" not in p:
        if not p["flavors"]:
            return "The cluster has no nodes."
        flavors = ", ".join(p["flavors"])
        return f"The cluster has no node of the flavors that {p['queue']} allows: {flavors}."
    if p["nodes"] == 1:
        why = next(what for key, what in _UNUSABLE.items() if p[key])
        return f"The only node for {p['podSet']} is {why}."
    told = ", ".join(f"{p[key]} {what}" for key, what in _UNUSABLE.items() if p[key])
    return f"None of the {p['nodes']} nodes for {p['podSet']} can be used: {told}."


_UNUSABLE = {"cordoned": "cordoned", "notReady": "not ready", "avoided": "avoided after a failed landing"}


def _no_flavor(p: Params) -> str:
    """No node accepts some pod set, were all of them well."""
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


def _no_level(p: Params) -> str:
    return f"There is no topology level {p['level']}; levels: {', '.join(p['levels'])}."


# Other jobs


def _behind(p: Params) -> str:
    """Somebody else goes first."""
    owner = _job(p)
    first = owner[0].upper() + owner[1:] if "name" not in p else owner
    if p.get("landing"):
        where = f" on {p['host']}" if "host" in p else ""
        also = f" and of {_count(p['others'], 'other job')}" if p["others"] else ""
        text = f"It fits but for pods of {owner}{also} that are still landing{where}"
        return f"{text}; it is tried again when they are bound."
    if p.get("held"):
        also = f" and {_count(p['others'], 'other job')}" if p["others"] else ""
        return f"Room that it needs is held for {owner}{also}; it is tried again when that ends."
    if "nodes" in p:
        nodes = _count(p["nodes"], "node")
        others = "1 other" if p["others"] == 1 else f"{p['others']} others"
        also = f", as well as {others}" if p["others"] else ""
        return f"{first} holds a reservation of {nodes} that this job would break{also}."
    text = f"{first} is ahead of it in {p['queue']}, whose order is strict, and "
    if p.get("never") and "why" not in p:
        return f"{text}can never start; who owns it or administers the queue must change, hold or delete it."
    if p.get("never"):
        return f"{text}can never start; change, hold or delete it: {p['why']}"
    return f"{text}waits."


def _bound(p: Params) -> str:
    """Its place is held while others leave, evicted for it or for another gang, or leaving anyway."""
    hosts, left = len(p["hosts"]), p["left"]
    text = f"{_count(hosts, 'node')} {'is' if hosts == 1 else 'are'} held for it; "
    if not p["victims"]:
        return f"{text}it starts in room that workloads evicted for other jobs leave."
    if not left:
        gone = "the workloads that it waited for have left"
        return f"{text}{gone}, and it starts when nothing else is in the way there."
    named = _jobs(p["jobs"])
    if left == len(p["jobs"]):
        return f"{text}it starts when the pods of {named} have left."
    return f"{text}it starts when the pods of {left} workloads have left: {named} and others."


def _given_back(p: Params) -> str:
    lacked = {"quota": "Quota", "room": "Room"}[p["freed"]]
    return f"{lacked} that it needed at its turn has been given back in this cycle; the next cycle decides."


def _deferred(p: Params) -> str:
    return (
        "This cycle came to no decision about it; the next one tries again." if p["cause"] == "Plan" else ""
    )


# Words


def _job(p: Params) -> str:
    """By name where that may be known, see `queuer.domain.veil`."""
    return f"{p['namespace']}/{p['name']}" if "name" in p else f"a job of {p['ownerQueue']}"


def _jobs(rows: Sequence[Params]) -> str:
    """Several: first those that are named, then how many of each queue."""
    named = [_job(row) for row in rows if "name" in row]
    others = Counter(row["ownerQueue"] for row in rows if "name" not in row)
    return ", ".join([*named, *(f"{_count(n, 'job')} of {queue}" for queue, n in others.items())])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _be(amount: str | int) -> str:
    return "is" if str(amount) == "1" else "are"


FORMS: Mapping[Token, Callable[[Params], str]] = {
    Token.MISCONFIGURED: _no_level,
    Token.NO_MATCHING_FLAVOR: _no_flavor,
    Token.NODES_UNAVAILABLE: _unavailable,
    Token.EXCEEDS_MAX_QUOTA: _exceeds,
    Token.WAITING_FOR_QUOTA: _row,
    Token.BORROWING_LIMIT_REACHED: _row,
    Token.TOPOLOGY_PLACEMENT_FAILED: _place,
    Token.BEHIND_IN_QUEUE: _behind,
    Token.WAITING_FOR_PREEMPTED_WORKLOADS: _bound,
    Token.PENDING_EVALUATION: _given_back,
    Token.SOLVER_DEFERRED: _deferred,
}

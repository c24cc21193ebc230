"""Sentences about quota: the limit, the guarantee or the ResourceQuota that a job meets, with all numbers.

Parameters have amounts as people read them. `queuer.domain.reasons.table` says which token uses which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from queuer.domain.nodes import DEFAULT_FLAVOR
from queuer.domain.quantity import amounts_text, short
from queuer.domain.reasons.amounts import be

BOUND = "jobs that start when others have left"
"""The name of bound gangs in sentences."""


class Owner(TypedDict, total=False):
    """A queue or a job, and the amount that it has of the resource in question."""

    queue: str
    namespace: str
    name: str
    amount: str


class QuotaParams(TypedDict, total=False):
    """Figures of one account of a queue, of one user in it (`perUser`), or of one ResourceQuota of a namespace.

    `kept`: not lent by other queues. `atLeast`: figures are those of the smallest size. `live`: the limit is the live
    capacity. `asked`: not covered by any guarantee. `evictable`, `notYet`: what the job may take from `owners` now, and
    from `until` on. `room`, `needs`: the amount that a ResourceQuota has room for, and the limit that it would need.
    `nearest`: no node has the resource; this one was perhaps meant. `largest`: the most that one node has, where a pod
    asks more.
    """

    queue: str
    resource: str
    flavor: str
    asks: str
    limit: str
    used: str
    held: str
    guaranteed: str
    kept: str
    leaving: str
    left: str
    missing: str
    live: bool
    atLeast: bool
    asked: Mapping[str, str]
    free: str
    evictable: str
    notYet: str
    owners: Sequence[Owner]
    until: float
    wait: int
    user: str
    perUser: str
    ahead: str
    resourceQuota: str
    namespace: str
    room: str
    needs: str
    coming: str
    lower: str
    nearest: Sequence[str]
    largest: Mapping[str, str]


def waits_for_quota(p: QuotaParams) -> str:
    """`used + held - leaving + kept + asks > limit`, or what a guarantee or a ResourceQuota leaves instead."""
    if "resourceQuota" in p:
        return _resource_quota(p)
    if "evictable" in p:
        return evictable(p)
    if "limit" not in p:
        return _entitlement(p)
    text = f"{p['queue']} uses {p['used']} of {p['limit']} {_account(p)} ({_limit(p)})"
    if "leaving" in p:
        text += f", {p['leaving']} of these {be(p['leaving'])} leaving"
    if p["held"] != "0":
        text += f", {p['held']} more {be(p['held'])} held for {BOUND}"
    if "kept" in p:
        lent = "it" if p["kept"] == "1" else "them"
        text += f", {p['kept']} {be(p['kept'])} kept for queues that do not lend {lent}"
    return f"{text}; this job {_asks(p)} {p['asks']}."


def exceeds_quota(p: QuotaParams) -> str:
    """The job is larger by itself than what it could ever have."""
    if "resourceQuota" in p:
        return _resource_quota(p)
    if "asked" in p:
        asked = amounts_text(p["asked"])
        text = f"this job {_asks(p)} {asked or 'for pods alone'}; {p['queue']} is guaranteed none of that."
        return f"Work that is not preemptible starts only inside a guarantee: {text}"
    if "limit" not in p:
        return _entitlement(p)
    text = f"{_asks(p).capitalize()} {p['asks']} {_account(p)}; "
    if "kept" in p:
        return text + _unlent(p)
    if "nearest" in p:
        meant = f"; did you mean {p['nearest'][0]}?" if p["nearest"] else "."
        return f"{text}no node has {p['resource']}{meant}"
    most = "the cluster has" if p.get("live") else f"{p['queue']} may never use more than"
    return f"{text}{most} {p['limit']}."


def evictable(p: QuotaParams) -> str:
    """A gang inside its guarantee may evict some work now, and some more later."""
    whose = ", ".join(f"{row['amount']} from {row['queue']}" for row in p["owners"])
    text = f"{p['queue']} uses {p['used']} of its guaranteed {p['guaranteed']} {_account(p)}"
    if p.get("held", "0") != "0":
        text += f", {p['held']} more {be(p['held'])} held for {BOUND},"
    text += f" and may claim {p['left']} more. This job asks {p['asks']}: {p['free']} {be(p['free'])} left by quota, "
    text += f"{p['evictable']} may be evicted for it{whose and f' ({whose})'}"
    if "wait" in p:
        text += f", {p['notYet']} more when their minRuntime is over, the first in {p['wait']} s"
    return f"{text}."


def _unlent(p: QuotaParams) -> str:
    """Other queues do not lend enough, even when nothing runs."""
    text = f"even when nothing runs {p['left']} of the {p['limit']} of {p['queue']} ({_limit(p)}) "
    text += f"{be(p['left'])} left, as {p['kept']} {be(p['kept'])} not lent. "
    text += f"It could start if {p['missing']} more were lent"
    return text + (f", or if it asked for {p['left']} at most." if p["left"] != "0" else ".")


def _entitlement(p: QuotaParams) -> str:
    """Work that nobody may evict does not borrow."""
    text = f"{p['queue']} is guaranteed {p['guaranteed']} {_account(p)}"
    if "used" in p:
        text = f"{p['queue']} uses {p['used']} of its guaranteed {p['guaranteed']} {_account(p)}"
    if p.get("held", "0") != "0":
        text += f", {p['held']} more {be(p['held'])} held for {BOUND}"
    return f"Work that is not preemptible does not borrow: {text}; this job {_asks(p)} {p['asks']}."


def _account(p: QuotaParams) -> str:
    """The resource, with its flavor unless there is only one."""
    flavor = p.get("flavor", DEFAULT_FLAVOR)
    return short(p["resource"]) + ("" if flavor == DEFAULT_FLAVOR else f" on {flavor}")


def _limit(p: QuotaParams) -> str:
    return "the live capacity" if p.get("live") else "the limit"


def _asks(p: QuotaParams) -> str:
    return "asks at least" if p.get("atLeast") else "asks"


# ResourceQuota of a namespace


def _resource_quota(p: QuotaParams) -> str:
    """`asks > limit`, or `used + coming - leaving + asks > limit`; then `missing` is the excess."""
    text = f"ResourceQuota {p['resourceQuota']} of namespace {p['namespace']} allows {p['limit']} {p['resource']}"
    if "missing" in p:
        text += f"; {_used(p)}"
    return f"{text}; this job {_asks(p)} {p['asks']}. There is room for it {_when(p)}."


def _used(p: QuotaParams) -> str:
    """Use now and soon, and the largest users."""
    text = f"{p['used']} {be(p['used'])} used"
    if "coming" in p:
        text += f", {p['coming']} more are kept for jobs that start"
    if "leaving" in p:
        text += f", {p['leaving']} fewer once its victims have left"
    names = ", ".join(f"{row['name']} ({row['amount']})" for row in p["owners"])
    return f"{text}, most by {names}" if names else text


def _when(p: QuotaParams) -> str:
    """The changes of which one is enough."""
    ways = []
    if "missing" in p:
        given = f"when {p['missing']} {be(p['missing'])} given back"
        if p["lower"] != "0":
            given += f" (work of lower priority uses {p['lower']}; nobody is evicted for a ResourceQuota)"
        ways.append(given)
    if p["room"] != "0":
        ways.append(f"if it asks {p['room']} at most")
    ways.append(f"if {p['needs']} are allowed")
    return ", or ".join(ways)

"""ResourceQuotas of namespaces: a gang whose pods the API server would not create is not started at all.

Requests, limits and the number of pods are compared, and what a ResourceQuota demands to be stated is. Pods that are
admitted but not created yet count as used, and so do those of bound gangs beyond their victims'. Nobody is evicted for
a ResourceQuota. An elastic gang is offered with no more pods than its namespace bears. Kubernetes adds up late, at
first not at all: amounts of pods that are seen count if they are more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from queuer.controller.ledger.round import isolate
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Assignment, Bond
from queuer.domain.errors import InvalidInput
from queuer.domain.quantity import add, format_quantity, parse_quantity
from queuer.domain.reasons import Explanation, Reason, Token, simple
from queuer.domain.usable import misconfigured
from queuer.domain.workload import PodSet, State, Workload
from queuer.kube.kinds import BY_NAME
from queuer.kube.objects import Amounts, ResourceQuota
from queuer.kube.requests import LIMITS

HOLDERS = 3
"""How many who use most of an amount are named."""
_COUNTED = {"count/pods": "pods"}
_REQUESTS = "requests."
_SMALLER = simple(
    Token.PENDING_EVALUATION,
    "The ResourceQuota of its namespace has room for fewer pods than were planned; the next cycle decides.",
)
_ON_ITS_WAY = frozenset({State.ADMITTED, State.PLACING})


class Users(NamedTuple):
    """The largest users of an amount, as `holders` of an explanation and as `owners` of a reason.

    `lower`: the part of work whose priority is lower than that of the job that asks.
    """

    holders: Sequence[Mapping[str, Any]]
    owners: Sequence[Mapping[str, Any]]
    lower: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """An amount of a ResourceQuota that a workload's pods would exceed. `used`: as its status says;
    `coming`: what is reckoned as used beside that, or below 0 what is given back.
    """

    quota: str
    resource: str
    limit: int
    used: int
    coming: int
    asks: int

    @property
    def unstartable(self) -> bool:
        """Whether the job is larger by itself."""
        return self.asks > self.limit

    def reason(self, workload: Workload, users: Users) -> Reason:
        """`asks > limit`, or `used + coming + asks > limit`; then `missing` is the excess."""
        params: dict[str, Any] = {"resourceQuota": self.quota, "namespace": workload.namespace}
        params |= {"resource": self.resource, "limit": self.limit, "used": self.used, "asks": self.asks}
        if any(p.min_count not in (None, p.count) for p in workload.pod_sets):
            params["atLeast"] = True
        if self.unstartable:
            return Reason(Token.EXCEEDS_MAX_QUOTA, {**params, "room": self.limit, "needs": self.asks})
        taken = max(0, self.used + self.coming)
        if self.coming:
            params["coming" if self.coming > 0 else "leaving"] = abs(self.coming)
        params |= {"room": max(0, self.limit - taken), "needs": taken + self.asks, "lower": users.lower}
        params |= {"missing": taken + self.asks - self.limit, "owners": users.owners}
        return Reason(Token.WAITING_FOR_QUOTA, params)


class Reckoning:
    """The ResourceQuotas at one moment, with what is admitted or bound but not created yet reckoned as used."""

    def __init__(self, state: ClusterState, quotas: Iterable[ResourceQuota]) -> None:
        self._quotas: dict[str, list[ResourceQuota]] = {}
        for quota in quotas:
            if quota.spec.scopes or quota.spec.scope_selector:
                continue  # it may be for other pods; what it refuses shows at landing
            self._quotas.setdefault(quota.metadata.namespace, []).append(quota)
        self._state = state
        self._coming = _on_their_way(state, self._quotas)
        self._sums: dict[str, dict[str, int]] = {}
        self._known: dict[tuple[str, str, int], Users] = {}
        self._held: dict[str, Mapping[str, int]] = {}
        """Pods by pod set of those that are bound."""
        self._replaced: set[str] = set()
        for bond in state.bonds:
            if bond.uid in state.live:
                self.hold(state.live[bond.uid].workload, bond)

    def refusal(
        self, workload: Workload, places: Sequence[Assignment] = (), *, victims: Iterable[str] = ()
    ) -> Explanation | None:
        """Why the workload cannot start in its namespace now, or once its victims have left; None if it can. `places`:
        how large, () = at its smallest size.
        """
        if _are_made(workload):
            return None
        namespace = workload.namespace
        quotas = self._quotas.get(namespace, ())
        if (silent := next(filter(None, (_unstated(workload, q) for q in quotas)), None)) is not None:
            return silent
        smallest = {p.name: p.least for p in workload.pod_sets}
        found = {(s.quota, s.resource): s for s in self._shortages(workload, smallest, victims)}
        if not found:
            borne = not places or self._bears(workload, _counts(places), victims=victims)
            return None if borne else _SMALLER
        short = sorted(found.values(), key=lambda s: not s.unstartable)
        users = [self._users(namespace, s.resource, workload.priority) for s in short]
        reasons = tuple(s.reason(workload, who) for s, who in zip(short, users, strict=True))
        detail = {"holders": list(users[0].holders)}
        return Explanation(primary=reasons[0], others=reasons[1:], detail=detail)

    def take(self, workload: Workload, places: Sequence[Assignment]) -> None:
        """Reckon with this workload's pods from now on."""
        if workload.namespace in self._quotas:
            self._held.pop(workload.uid, None)
            self._expect(workload, _asks(workload.pod_sets, _counts(places)))

    def hold(self, workload: Workload, bond: Bond) -> None:
        """Reckon with a bound workload's pods from now on, as far as they are more than those of its victims."""
        if workload.namespace in self._quotas:
            left = self._left_by(bond.victims, workload.namespace)
            counts = _counts(bond.assignments)
            asks = _asks(workload.pod_sets, counts)
            self._held[workload.uid] = counts
            self._expect(workload, {r: max(0, n - left.get(r, 0)) for r, n in asks.items()})
            self._replaced.update(bond.victims)

    def over_quota(self, waiting: Iterable[Live]) -> dict[str, Explanation]:
        """Those of the waiting workloads that cannot start, and why. Never who is bound: work was lost for its place,
        which is held until it starts or its bond ends. Raises Isolated.
        """
        found = dict[str, Explanation]()
        for live in waiting if self._quotas else ():
            with isolate(live.uid):
                if live.uid not in self._held and (why := self.refusal(live.workload)) is not None:
                    found[live.uid] = live.explanation if live.unstartable and live.explanation else why
        return found

    def smaller(self, waiting: Iterable[Live]) -> dict[str, Live]:
        """The elastic ones that are to be offered with fewer pods than they ask for, with those. Raises Isolated."""
        found = dict[str, Live]()
        for live in waiting if self._quotas else ():
            with isolate(live.uid):
                if (borne := self._borne(live.workload)) != live.workload:
                    found[live.uid] = replace(live, workload=borne)
        return found

    def _borne(self, workload: Workload) -> Workload:
        """The workload with no more pods than its namespace bears: one pod set after the other takes the most. It never
        has fewer than its smallest size, nor than its bond holds.
        """
        sets = workload.pod_sets
        if all(p.least == p.count for p in sets) or self._bears(workload, {p.name: p.count for p in sets}):
            return workload
        bound = self._held.get(workload.uid, {})
        counts = {p.name: max(p.least, min(p.count, bound.get(p.name, 0))) for p in sets}
        for pod_set in sets:
            counts[pod_set.name] = self._most(workload, counts, pod_set)
        return replace(workload, pod_sets=tuple(replace(p, count=counts[p.name]) for p in sets))

    def _most(self, workload: Workload, counts: Mapping[str, int], pod_set: PodSet) -> int:
        """The most pods of a set beside so many of the others; those that `counts` gives it at least."""
        name = pod_set.name
        larger = range(counts[name] + 1, pod_set.count + 1)
        return counts[name] + bisect_left(
            larger, True, key=lambda n: not self._bears(workload, {**counts, name: n})
        )

    def _bears(self, workload: Workload, counts: Mapping[str, int], *, victims: Iterable[str] = ()) -> bool:
        """Whether its namespace has room for so many pods by pod set."""
        return _are_made(workload) or not any(self._shortages(workload, counts, victims))

    def _shortages(
        self, workload: Workload, counts: Mapping[str, int], victims: Iterable[str]
    ) -> Iterator[Shortage]:
        """What so many pods would exceed, each amount of each ResourceQuota."""
        namespace = workload.namespace
        if namespace not in self._quotas:
            return
        coming = add({}, self._sum(namespace))
        coming = add(coming, self._coming.get(namespace, {}).get(workload.uid, {}), times=-1)
        coming = add(coming, self._left_by(victims, namespace), times=-1)
        asks, seen = _asks(workload.pod_sets, counts), self._state.pods.asked(namespace)
        for quota in self._quotas[namespace]:
            yield from _exceeded(quota, asks, seen=seen, coming=coming)

    def _expect(self, workload: Workload, amounts: Mapping[str, int]) -> None:
        self._coming.setdefault(workload.namespace, {})[workload.uid] = {} if _are_made(workload) else amounts
        self._sums.clear()
        self._known.clear()

    def _sum(self, namespace: str) -> Mapping[str, int]:
        """The sum of what is coming there."""
        if namespace not in self._sums:
            self._sums[namespace] = _total(self._coming.get(namespace, {}).values())
        return self._sums[namespace]

    def _left_by(self, victims: Iterable[str], namespace: str) -> dict[str, int]:
        """The present use of these victims' pods there. No pods are replaced twice."""
        lives = (self._state.live.get(uid) for uid in victims if uid not in self._replaced)
        left = (live.workload for live in lives if live is not None and live.workload.namespace == namespace)
        return _total(_pods_of(workload, self._state) for workload in left)

    # Users

    def _users(self, namespace: str, resource: str, priority: int) -> Users:
        """Those that have something of a resource there, or will have. `priority`: of who asks."""
        key = (namespace, resource, priority)
        if key not in self._known:
            live, here, coming = (
                self._state.live,
                self._there.get(namespace, {}),
                self._coming.get(namespace, {}),
            )
            uses = [
                (-amount, uid)
                for uid in here.keys() | (coming.keys() & live.keys())
                if (amount := sum(part.get(uid, {}).get(resource, 0) for part in (here, coming))) > 0
            ]
            most = [(live[uid], -n) for n, uid in sorted(uses)[:HOLDERS]]
            lower = -sum(n for n, uid in uses if live[uid].workload.priority < priority)
            owners = [{"namespace": namespace, "name": own.workload.name, "amount": n} for own, n in most]
            self._known[key] = Users([self._holder(own, resource, n) for own, n in most], owners, lower)
        return self._known[key]

    def _holder(self, live: Live, resource: str, amount: int) -> Mapping[str, Any]:
        """A row like those that the decision tells."""
        own = live.workload
        row = {"workload": own.uid, "name": own.name, "namespace": own.namespace, "queue": own.queue}
        marks = {
            "leaving": live.state is State.EVICTING,
            "starting": live.state in _ON_ITS_WAY,
            "held": own.uid in self._held,
        }
        told = {**row, "resource": resource, "amount": format_quantity(amount, resource=resource)}
        return {**told, **{name: True for name, on in marks.items() if on}}

    @cached_property
    def _there(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """The use of each workload's pods, by namespace that has a ResourceQuota."""
        found: dict[str, dict[str, Mapping[str, int]]] = {}
        for live in self._state.live.values():
            namespace = live.workload.namespace
            if namespace in self._quotas and (uses := _pods_of(live.workload, self._state)):
                found.setdefault(namespace, {})[live.uid] = uses
        return found


def _counts(places: Iterable[Assignment]) -> Mapping[str, int]:
    """Pods by pod set, 0 of those that a workload has since its place was planned."""
    return Counter({a.pod_set: a.count for a in places})


def _are_made(workload: Workload) -> bool:
    """Whether its pods are there while it waits: gated, and counted by Kubernetes already."""
    return BY_NAME[workload.kind].gates is not None


def _total(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in amounts:
        total = add(total, one)
    return total


def _pods_of(workload: Workload, state: ClusterState) -> dict[str, int]:
    """The present use of a job's pods."""
    return _total({**p.requests, **p.limits} for p in state.pods.of(workload) if not p.ended)


def _asks(pod_sets: Iterable[PodSet], counts: Mapping[str, int]) -> dict[str, int]:
    """Requests and limits of `counts[name]` pods of each set."""
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        total = add(total, {**pod_set.requests, **pod_set.limits}, times=counts[pod_set.name])
    return total


def _on_their_way(state: ClusterState, namespaces: Container[str]) -> dict[str, dict[str, Mapping[str, int]]]:
    """By namespace and uid, what admitted pods that do not exist yet will request."""
    coming: dict[str, dict[str, Mapping[str, int]]] = {}
    for live in state.live.values():
        namespace, placement = live.workload.namespace, live.placement
        if namespace not in namespaces or placement is None or live.state not in _ON_ITS_WAY:
            continue
        if _are_made(live.workload):
            continue
        there = Counter(pod.pod_set for pod in state.pods.of(live.workload))
        sets = live.workload.pod_sets
        missing = {p.name: max(0, placement.held.get(p.name, 0) - there[p.name]) for p in sets}
        coming.setdefault(namespace, {})[live.uid] = _asks(sets, missing)
    return coming


def _exceeded(
    quota: ResourceQuota, asks: Mapping[str, int], *, seen: Mapping[str, int], coming: Mapping[str, int]
) -> Iterator[Shortage]:
    """The amounts of the quota that a workload which `asks` so much would exceed. `seen`: what pods of the namespace
    request; `coming`: what others will.
    """
    for key, hard in _hard(quota).items():
        resource = _COUNTED.get(key, key.removeprefix(_REQUESTS))
        if not asks.get(resource):
            continue
        try:
            limit = parse_quantity(hard, resource=resource)
            used = max(
                parse_quantity(quota.status.used.get(key, 0), resource=resource), seen.get(resource, 0)
            )
        except InvalidInput:
            continue  # keys that name something else, e.g. a scope
        more = coming.get(resource, 0)
        if used + more + asks[resource] > limit:
            yield Shortage(
                quota=quota.metadata.name,
                resource=resource,
                limit=limit,
                used=used,
                coming=more,
                asks=asks[resource],
            )


def _hard(quota: ResourceQuota) -> Amounts:
    """The amounts that are enforced; those that are written until Kubernetes has taken them over."""
    return quota.status.hard or quota.spec.hard


def _unstated(workload: Workload, quota: ResourceQuota) -> Explanation | None:
    """The reason of a job without what the quota demands of each container: no pod of it would be created."""
    demanded = {key.removeprefix(_REQUESTS) for key in _hard(quota)}
    missing = {p.name: keys for p in workload.pod_sets if (keys := [k for k in p.unstated if k in demanded])}
    if not missing:
        return None
    sets = "; ".join(f"{', '.join(map(_field, keys))} in {name}" for name, keys in missing.items())
    own, fields = quota.metadata, sorted({_field(key) for keys in missing.values() for key in keys})
    return misconfigured(
        f"ResourceQuota {own.name} of namespace {own.namespace} demands of every container: {sets}. "
        "Write it in the template, or have a LimitRange give a default",
        resourceQuota=own.name, namespace=own.namespace, fields=fields,
    )  # fmt: skip


def _field(key: str) -> str:
    return key if key.startswith(LIMITS) else f"{_REQUESTS}{key}"

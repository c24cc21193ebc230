"""ResourceQuotas of namespaces: a gang whose pods the API server would not create is not started at all.

Only what admission charges is compared: requests and the number of pods. What is admitted but not created yet
is reckoned as used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from queuer.controller.live import Live
from queuer.controller.state import ClusterState
from queuer.domain.errors import InvalidInput
from queuer.domain.quantity import add, format_quantity, parse_quantity
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State, Workload, demand_of
from queuer.kube.objects import ResourceQuota

_COUNTED = {"count/pods": "pods"}
_REQUESTS = "requests."
_ON_ITS_WAY = frozenset({State.ADMITTED, State.PLACING})


class Reckoning:
    """The ResourceQuotas at one moment, with what is admitted but not created yet reckoned as used."""

    def __init__(self, state: ClusterState, quotas: Iterable[ResourceQuota]) -> None:
        self._quotas: dict[str, list[ResourceQuota]] = {}
        for quota in quotas:
            if quota.spec.scopes or quota.spec.scope_selector:
                continue  # it may be for other pods; what it refuses shows at landing
            self._quotas.setdefault(quota.metadata.namespace, []).append(quota)
        self._coming = _on_their_way(state, self._quotas)

    def refusal(self, workload: Workload) -> Reason | None:
        """Why the workload cannot start in its namespace now; None if it can."""
        coming = self._coming.get(workload.namespace, {})
        reasons = (shortage(workload, q, coming=coming) for q in self._quotas.get(workload.namespace, ()))
        return next((reason for reason in reasons if reason is not None), None)

    def take(self, workload: Workload, counts: Mapping[str, int]) -> None:
        """Reckon with this workload's pods from now on."""
        if workload.namespace in self._quotas:
            coming = self._coming.get(workload.namespace, {})
            self._coming[workload.namespace] = add(coming, demand_of(workload.pod_sets, counts))

    def barred(self, waiting: Iterable[Live]) -> dict[str, Explanation]:
        """Those of the waiting workloads that cannot start, and why."""
        if not self._quotas:
            return {}
        found = ((live.uid, self.refusal(live.workload)) for live in waiting)
        return {uid: Explanation(primary=reason) for uid, reason in found if reason is not None}


def _on_their_way(state: ClusterState, namespaces: Container[str]) -> dict[str, dict[str, int]]:
    """By namespace, what admitted pods that do not exist yet will request."""
    coming: dict[str, dict[str, int]] = {}
    for live in state.lives():
        namespace, placement = live.workload.namespace, live.placement
        if namespace not in namespaces or placement is None or live.state not in _ON_ITS_WAY:
            continue
        there = Counter(pod.pod_set for pod in state.pods.of(live.uid))
        for pod_set in live.workload.pod_sets:
            missing = max(0, placement.counts.get(pod_set.name, 0) - there[pod_set.name])
            coming[namespace] = add(coming.get(namespace, {}), pod_set.requests, times=missing)
    return coming


def shortage(workload: Workload, quota: ResourceQuota, *, coming: Mapping[str, int]) -> Reason | None:
    """The first amount of the quota that the workload's pods would exceed; at their smallest size."""
    asks = _least(workload)
    for key, hard in quota.status.hard.items() or quota.spec.hard.items():
        resource = _COUNTED.get(key, key.removeprefix(_REQUESTS))
        if not asks.get(resource):
            continue
        try:
            limit = parse_quantity(hard, resource=resource)
            used = parse_quantity(quota.status.used.get(key, 0), resource=resource)
        except InvalidInput:
            continue  # keys that name something else, e.g. a scope
        taken = used + coming.get(resource, 0)
        if taken + asks[resource] > limit:
            return _reason(workload, quota, resource, limit=limit, used=taken, asks=asks[resource])
    return None


def _least(workload: Workload) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod_set in workload.pod_sets:
        total = add(total, pod_set.requests, times=pod_set.min_count or pod_set.count)
    return total


def _reason(
    workload: Workload, quota: ResourceQuota, resource: str, *, limit: int, used: int, asks: int
) -> Reason:
    def show(amount: int) -> str:
        return format_quantity(amount, resource=resource)

    name, namespace = quota.metadata.name, workload.namespace
    never = asks > limit
    text = f"ResourceQuota {name} of namespace {namespace} allows {show(limit)} {resource}"
    text += (
        f"; the job asks for {show(asks)}" if never else f", {show(used)} used; the job asks for {show(asks)}"
    )
    return Reason(
        token=Token.EXCEEDS_MAX_QUOTA if never else Token.WAITING_FOR_QUOTA,
        text=text,
        params={
            "resourceQuota": name, "namespace": namespace, "resource": resource,
            "limit": show(limit), "used": show(used), "asks": show(asks),
        },
    )  # fmt: skip

"""ResourceQuotas of namespaces: a gang whose pods the API server would not create is not started at all.

Only what admission charges is compared: requests and the number of pods. What is admitted but not created yet
is reckoned as used, and so is what bound gangs will request beyond their victims.
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
from queuer.solver.problem import Bond

_COUNTED = {"count/pods": "pods"}
_REQUESTS = "requests."
_ON_ITS_WAY = frozenset({State.ADMITTED, State.PLACING})


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
        self._held: dict[str, dict[str, int]] = {}
        self._replaced: set[str] = set()
        for bond in state.bonds:
            if bond.uid in state.live:
                self.hold(state.live[bond.uid].workload, bond)

    def refusal(self, workload: Workload, *, victims: Iterable[str] = ()) -> Reason | None:
        """Why the workload cannot start in its namespace now, or once its victims have left; None if it can."""
        coming = self._coming.get(workload.namespace, {})
        coming = add(coming, self._held.get(workload.uid, {}), times=-1)
        coming = add(coming, self._left_by(victims, workload.namespace), times=-1)
        reasons = (shortage(workload, q, coming=coming) for q in self._quotas.get(workload.namespace, ()))
        return next((reason for reason in reasons if reason is not None), None)

    def take(self, workload: Workload, counts: Mapping[str, int]) -> None:
        """Reckon with this workload's pods from now on."""
        if workload.namespace in self._quotas:
            self._add(workload.namespace, self._held.pop(workload.uid, {}), times=-1)
            self._add(workload.namespace, demand_of(workload.pod_sets, counts))

    def hold(self, workload: Workload, bond: Bond) -> None:
        """Reckon with a bound workload's pods from now on, as far as they are more than those of its victims."""
        if workload.namespace in self._quotas:
            self._add(workload.namespace, self._held.pop(workload.uid, {}), times=-1)
            left = self._left_by(bond.victims, workload.namespace)
            counts = Counter({a.pod_set: a.count for a in bond.assignments})  # of sets that it had
            asks = demand_of(workload.pod_sets, counts)
            self._held[workload.uid] = {r: max(0, n - left.get(r, 0)) for r, n in asks.items()}
            self._add(workload.namespace, self._held[workload.uid])
            self._replaced.update(bond.victims)

    def _add(self, namespace: str, amounts: Mapping[str, int], *, times: int = 1) -> None:
        self._coming[namespace] = add(self._coming.get(namespace, {}), amounts, times=times)

    def _left_by(self, victims: Iterable[str], namespace: str) -> dict[str, int]:
        """What pods of these still use there. Nobody's pods are replaced twice."""
        left: dict[str, int] = {}
        for pod in (pod for uid in victims if uid not in self._replaced for pod in self._state.pods.of(uid)):
            if pod.namespace == namespace and not pod.ended:
                left = add(left, pod.requests)
        return left

    def barred(self, waiting: Iterable[Live]) -> dict[str, Explanation]:
        """Those of the waiting workloads that cannot start, and why. Never who is bound: work was lost for its place,
        which is held until it starts or its bond ends.
        """
        if not self._quotas:
            return {}
        found = ((live.uid, self.refusal(live.workload)) for live in waiting if live.uid not in self._held)
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

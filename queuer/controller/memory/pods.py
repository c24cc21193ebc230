"""Pods as the controller counts them: by node as kube-scheduler does, by namespace as a ResourceQuota does, and by the
job that owns them.

Sums are kept as pods come and go; nothing is recomputed from the whole cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from queuer.domain.outside import Outside
from queuer.domain.quantity import NOTHING, Resources, add, capped
from queuer.domain.reasons.run_sentences import node_gone
from queuer.domain.workload import GRACE, Workload

MOST_ON_NODE = 2**48
"""Of one resource on a node, in base units: 256 tebibytes. 64 bits sum those of 16,384 nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod. `owner`: uid of the job it belongs to; `pod_set`: its role there; `problem`: why it is not bound;
    `failure`: why it failed, for people. `controller`: kind and name of the object that drives it, whatever that is;
    None = nothing does.

    `limits`: by key of a ResourceQuota, for which they count. `deleted`: since when it is to go (its grace included),
    seconds since the epoch; `grace`: what it is given unless whoever deletes it says otherwise.
    `generation`: moves with its spec, to which `requests` and `limits` belong.
    `ended`: phase Succeeded or Failed: it holds nothing any more. `terminating` pods hold all until they are
    gone.
    """

    uid: str
    namespace: str
    name: str
    owner: str | None = None
    pod_set: str | None = None
    controller: tuple[str, str] | None = None
    node: str | None = None
    requests: Resources = field(default_factory=lambda: NOTHING)
    limits: Resources = field(default_factory=lambda: NOTHING)
    generation: int = 0
    running: bool = False
    succeeded: bool = False
    failed: bool = False
    deleted: float | None = None
    grace: float = GRACE
    problem: str = ""
    failure: str = ""

    @property
    def terminating(self) -> bool:
        """Its deletion was asked for."""
        return self.deleted is not None

    @property
    def stays(self) -> bool:
        """It holds something, and nobody has told it to go."""
        return not self.ended and not self.terminating

    @property
    def ended(self) -> bool:
        """It runs no more, though its object may still be there."""
        return self.succeeded or self.failed

    @property
    def charged_to(self) -> str | None:
        """The node whose capacity it holds."""
        return None if self.ended else self.node


_NO_PODS: Mapping[str, PodView] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """The job whose controller made an object, and its pod set that the pods of that object are; None = as known."""

    uid: str
    pod_set: str | None = None


_LINKS = 2
"""Objects between a pod and its job, at most. References are claims, and may name each other in a ring."""


class PodIndex:
    """All pods of the cluster, with the sums of requests by node and by namespace. `makers`: by what they made."""

    def __init__(self) -> None:
        self.makers: dict[str, Maker] = {}
        self._pods: dict[str, PodView] = {}
        self._by_owner: dict[tuple[str, ...], dict[str, PodView]] = {}  # see `_owner`
        self._sums: dict[
            tuple[str, ...], Outside
        ] = {}  # of owners that were asked for and have not changed since
        self._used: dict[str, dict[str, int]] = {}
        self._asked: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> PodView | None:
        """The pod, if it is known."""
        return self._pods.get(uid)

    def put(self, pod: PodView) -> PodView | None:
        """Take over a new or changed pod; returns what was known of it.

        A pod keeps the owner that it had. Deleting a job with its pods orphaned takes the reference off them, and
        they must go on being charged to it.
        """
        old = self.remove(pod.uid)
        self._pods[pod.uid] = pod
        self._by_owner.setdefault(_owner(pod), {})[pod.uid] = pod
        self._count(pod, sign=1)
        return old

    def remove(self, uid: str) -> PodView | None:
        """Forget a pod that is gone; returns what was known of it."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        key = _owner(pod)
        del self._by_owner[key][uid]
        if not self._by_owner[key]:
            del self._by_owner[key]
        self._count(pod, sign=-1)
        return pod

    def of(self, workload: Workload) -> tuple[PodView, ...]:
        """Pods of a job. A pod of another namespace is none of them, whatever it says of itself."""
        return tuple(self._by_owner.get((workload.namespace, workload.uid), _NO_PODS).values())

    def payer(self, owner: str, pod_set: str | None) -> tuple[str, str | None]:
        """The job that pays for pods of `owner`, and their pod set there."""
        for _ in range(_LINKS):
            maker = self.makers.get(owner)
            if maker is None:
                break
            owner, pod_set = maker.uid, maker.pod_set or pod_set
        return owner, pod_set

    def made(self, uid: str, maker: Maker, *, namespace: str) -> tuple[PodView, ...]:
        """An object is known to be made by another: returns those of its pods that go over to that one."""
        self.makers[uid] = maker
        moved = []
        for pod in tuple(self._by_owner.get((namespace, uid), _NO_PODS).values()):
            owner, pod_set = self.payer(uid, pod.pod_set)
            moved.append(replace(pod, owner=owner, pod_set=pod_set))
            self.put(moved[-1])
        return tuple(moved)

    def made_by(self, uid: str) -> list[str]:
        """Uids of the objects that an object is known to have made."""
        return [made for made, maker in self.makers.items() if maker.uid == uid]

    def unmade(self, uid: str) -> None:
        """An object of another is no more. Pods that are left of it keep their owner."""
        self.makers.pop(uid, None)

    def used(self, node: str) -> Resources:
        """Requests of all pods bound to a node."""
        return self._used.get(node, NOTHING)

    def asked(self, namespace: str) -> Resources:
        """Requests and limits of all pods of a namespace, bound or not."""
        return self._asked.get(namespace, NOTHING)

    def unpaid(self, paid: Container[str]) -> Iterator[Outside]:
        """By owner the pods on nodes that belong to no job of `paid` (uids)."""
        for key, pods in self._by_owner.items():
            if len(key) == 2 and key[1] in paid:
                continue
            if key not in self._sums:
                self._sums[key] = _outside(pods.values())
            if self._sums[key].amounts:
                yield self._sums[key]

    def _count(self, pod: PodView, *, sign: int) -> None:
        self._sums.pop(_owner(pod), None)
        if pod.charged_to is not None:
            _add(self._used, pod.charged_to, pod.requests, sign=sign)
        if not pod.ended:
            _add(self._asked, pod.namespace, pod.requests, sign=sign)
            _add(self._asked, pod.namespace, pod.limits, sign=sign)


def failure_of(old: PodView | None, new: PodView | None, nodes: Container[str]) -> str:
    """Why a pod has failed by now, or went with its node; empty where it did neither, or had failed before. `new`:
    None = it is gone.
    """
    if old is None or new is not None:
        return "" if new is None or (old is not None and old.failed) else new.failure
    gone = not old.ended and old.node is not None and old.node not in nodes
    return node_gone(old.name, old.node or "") if gone else ""


def _owner(pod: PodView) -> tuple[str, ...]:
    """Namespace and uid of its job; of other pods namespace, kind and name of what drives them."""
    if pod.owner is not None:
        return pod.namespace, pod.owner
    return (pod.namespace, *(pod.controller or ("Pod", pod.name)))


def _outside(pods: Collection[PodView]) -> Outside:
    """The pods of one owner, as far as they hold a node."""
    first = next(iter(pods))
    kind, name = first.controller or ("Pod", first.name)
    nodes: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.charged_to is not None:
            nodes[pod.charged_to] = add(nodes.get(pod.charged_to, {}), pod.requests)
    nodes = {node: capped(there, MOST_ON_NODE) for node, there in nodes.items()}
    amounts = reduce(add, nodes.values(), NOTHING)
    return Outside(namespace=first.namespace, kind=kind, name=name, amounts=amounts, nodes=nodes)


def _add(sums: dict[str, dict[str, int]], key: str, amounts: Resources, *, sign: int) -> None:
    """Count into one of the sums, of which none stays that is nothing."""
    total = sums.setdefault(key, {})
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + sign * amount
        if not total[resource]:
            del total[resource]
    if not total:
        del sums[key]

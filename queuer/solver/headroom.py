"""How much one job of a queue could start now: a probe job, given to the decision itself, on what the last plan left.

Nobody is evicted for a probe, and it leaves held room and reservations whole as any job does that runs without an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from queuer.domain.per_user import JOBS, Share, Waiting, over_user_limit
from queuer.domain.quantity import Resources
from queuer.domain.queue import Order, QueueState, QueueTree
from queuer.domain.quota import Account, charge_of
from queuer.domain.workload import PodSet, Workload
from queuer.solver.after_cycle import AfterCycle, shares_of, waiting_in
from queuer.solver.arrays import Arrays
from queuer.solver.eviction.rights import takes
from queuer.solver.records import Pending
from queuer.solver.state import State

PROBE = "probe"
_ANY = 2**62


class Cap(StrEnum):
    """The obstacle to a larger probe."""

    LIMIT = "limit"  # a row of quota
    PER_USER = "perUser"  # what one user may have in a queue on the path
    HELD = "held"  # nothing starts in it, or in one above it
    DRAINING = "draining"  # nor is anything new queued
    CAPACITY = "capacity"  # no node has room for one more pod
    LINE = "line"  # its queue is strict, and somebody waits in it already
    PLACEMENT = "placement"  # there is room, but in no arrangement: levels, reservations, landing pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The room that a limit on the path leaves one workload of the queue. `live`: it is the live capacity."""

    queue: str
    account: Account
    limit: int
    room: int
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """In one flavor, by pods that ask for `requests`. `pods`: of the largest job that would start; `levels`: the same
    inside one domain of a level. `ancestor`: whose limit or state binds, where `cap` is one. `shares`: what limits of
    the user leave. `free`: by resource, on nodes of the flavor that may be used. `reclaimable`: pods that it may have
    beyond these at most, as its guarantee is taken back from others; `borrowers`: whose they are, most first. `own`: by
    resource the guarantee and the use of the queue, of the flavor where its guarantee is by flavor.
    """

    flavor: str
    requests: Resources
    pods: int
    levels: Mapping[str, int]
    cap: Cap
    ancestor: str | None
    bounds: tuple[Bound, ...]
    shares: tuple[Share, ...]
    free: Resources
    reclaimable: int
    borrowers: tuple[str, ...]
    own: Mapping[str, tuple[int, int]]


def headroom(after: AfterCycle, queue: str, requests: Resources, *, flavor: str, user: str = "") -> Headroom:
    """Of a job of this user. `requests`: of one pod, of resources that some node has. Of an inner queue, which takes no
    job: what its limits and the nodes leave to all below it together.
    """
    return _Probe(after, queue, requests, flavor, user).figures()


class _Probe:
    def __init__(self, after: AfterCycle, queue: str, requests: Resources, flavor: str, user: str) -> None:
        self._after = after
        self._queue, self._flavor, self._user = queue, flavor, user
        self._requests = {"pods": 1, **requests}
        self._ahead, self._keeping = _ahead(after, queue), _keeping(after)
        self._state = after.state_with(*self._ahead, *self._keeping, self._probe(1))

    def figures(self) -> Headroom:
        """All of it."""
        tree = self._state.book.tree
        bounds, shares, slots = self._bounds(), self._shares(), self._slots()
        tightest = min(bounds, key=lambda b: b.room // self._asks(b), default=None)
        quota = slots if tightest is None else max(0, tightest.room // self._asks(tightest))
        least = min(shares, key=self._pods_in, default=None)
        of_user = slots if least is None else self._pods_in(least)
        most = min(slots, quota, of_user)
        closed, leaf = _closed(tree, self._queue), tree.is_leaf(self._queue)
        pods = 0 if closed else self._largest(most) if leaf else most
        cap, ancestor = Cap.LINE if self._ahead and not pods and most else Cap.PLACEMENT, None
        if closed is not None:
            cap, ancestor = Cap(tree.effective_state(self._queue)), closed
        elif tightest is not None and not tightest.live and pods == quota:
            cap, ancestor = Cap.LIMIT, tightest.queue
        elif pods == slots or (tightest is not None and pods == quota):
            cap = Cap.CAPACITY
        elif least is not None and pods == of_user:
            cap, ancestor = Cap.PER_USER, least.queue
        names = self._state.snapshot.topology.levels if leaf and not closed else ()
        reclaimable, borrowers = self._reclaimable(pods) if leaf and not closed else (0, ())
        asked = [resource for resource in self._requests if resource != "pods"]
        return Headroom(
            flavor=self._flavor,
            requests=self._requests,
            pods=pods,
            levels={level: self._largest(pods, required=level) for level in names},
            cap=cap,
            ancestor=ancestor,
            bounds=bounds,
            shares=shares,
            free=self._state.free_in(self._flavor, self._requests),
            reclaimable=reclaimable,
            borrowers=borrowers,
            own={resource: self._own(resource) for resource in asked or ("pods",)},
        )

    def _own(self, resource: str) -> tuple[int, int]:
        book = self._after.state.book
        account: Account = (self._flavor, resource)
        if not book.guaranteed(self._queue, account):
            account = None, resource
        return book.guaranteed(self._queue, account), self._after.state.claimed.used(self._queue, account)

    def _reclaimable(self, pods: int) -> tuple[int, tuple[str, ...]]:
        """How much larger it may be by eviction at most, and from which queues. Whether nodes then have room in the
        right arrangement is not looked at.
        """
        asked, book = charge_of({self._flavor: self._requests}), self._state.book
        claims = [account for account in asked if account in book.claims(self._queue)]
        best: tuple[int, tuple[str, ...]] = (0, ())
        if not claims:
            return best
        limits = [bound.room // self._asks(bound) for bound in self._bounds() if not bound.live]
        limit = min([*limits, *(self._pods_in(share) for share in self._shares())], default=_ANY)
        used = self._state.claimed.used
        for path in book.lineage(self._queue)[:-1]:  # where it is entitled says from whom it may take
            most = min(limit, *((book.guaranteed(path, a) - used(path, a)) // asked[a] for a in claims))
            if most > pods:
                best = max(best, self._taken(pods, most, claims), key=lambda found: found[0])
        return best

    def _taken(self, pods: int, most: int, claims: Sequence[Account]) -> tuple[int, tuple[str, ...]]:
        """Beyond `pods`, up to `most`, by what one of that size may evict, with what is free already."""
        state = State(self._arrays(self._probe(most, fixed=True)), time=self._after.now)
        gang, whose, free, larger = (
            state.arrays.waiting.gangs[PROBE],
            Counter[str](),
            self._state.free_in(self._flavor, self._requests),
            most,
        )
        charge = charge_of({self._flavor: {r: n * most for r, n in self._requests.items()}})
        for account in claims:
            taken = takes(state, gang, charge, account)
            for uid, amount in taken.items():
                whose[state.running[uid].admitted.workload.queue] += amount
            resource = account[1]
            have = sum(taken.values()) + free[resource] if taken else 0
            larger = min(larger, have // self._requests[resource])
        more = max(0, larger - pods)
        return more, tuple(path for path, _ in whose.most_common()) if more else ()

    def _shares(self) -> tuple[Share, ...]:
        """The room that limits of the user leave a job that comes now."""
        snapshot, plan, probe = self._after.snapshot, self._after.plan, self._probe(1).workload
        if not snapshot.tree.per_user:
            return ()
        shares, own = shares_of(snapshot), Waiting(workload=probe).turn()
        before = (waiting for waiting in waiting_in(snapshot, plan) if waiting.turn() < own)
        over_user_limit(before, shares, snapshot.tree)
        return tuple(share for share, _ in shares.asked(probe))

    def _pods_in(self, share: Share) -> int:
        """How many pods of one job a share has room for."""
        if share.resource == JOBS:
            return _ANY if share.room else 0
        return share.room // self._requests[share.resource]

    def _asks(self, bound: Bound) -> int:
        return self._requests[bound.account[1]]

    def _probe(self, pods: int, *, required: str | None = None, fixed: bool = False) -> Pending:
        """A job of so many pods, or of fewer unless `fixed`."""
        least = 1 if pods > 1 and not fixed else None
        pod_set = PodSet(name="main", count=pods, min_count=least, requests=self._requests)
        workload = Workload(
            uid=PROBE, kind="Probe", namespace="", name=PROBE, queue=self._queue, pod_sets=(pod_set,),
            submitted=self._after.now, required=required, user=self._user,
        )  # fmt: skip
        return Pending(workload=workload, avoid=self._elsewhere())

    def _arrays(self, probe: Pending) -> Arrays:
        return self._after.arrays_with(*self._ahead, *self._keeping, probe)

    def _elsewhere(self) -> frozenset[str]:
        """Nodes of the other flavors."""
        nodes = self._after.state.nodes
        return frozenset(nodes.names[i] for i in np.flatnonzero(~nodes.in_flavor[self._flavor]))

    def _largest(self, most: int, *, required: str | None = None) -> int:
        """The size at which a job of up to `most` pods would start, as large as it can."""
        if most < 1:
            return 0
        plan = self._after.decided(self._arrays(self._probe(most, required=required)))
        started = next((a for a in plan.admissions if a.uid == PROBE), None) if plan else None
        return 0 if started is None else sum(row.count for row in started.assignments)

    def _bounds(self) -> tuple[Bound, ...]:
        """The room that limits on the path leave, from the leaf up."""
        state, book = self._state, self._state.book
        accounts = charge_of({self._flavor: self._requests})
        rooms = {account: state.rooms(self._queue, account) for account in accounts}
        found = []
        for path in book.lineage(self._queue):
            for account in accounts:
                limit = book.limit(path, account)
                if limit is not None:
                    live, room = book.is_live(path, account, limit), rooms[account][path]
                    found.append(Bound(queue=path, account=account, limit=limit, room=room, live=live))
        return tuple(found)

    def _slots(self) -> int:
        """Pods that fit on the nodes one by one, whatever is held or landing."""
        state, pod_set = self._state, self._probe(1).workload.pod_sets[0]
        need, open_to = state.nodes.need(pod_set), state.nodes.open_to(pod_set, self._flavor)
        return int(np.where(open_to, need.slots(state.free_now), 0).sum())


def _ahead(after: AfterCycle, queue: str) -> tuple[Pending, ...]:
    """The waiting jobs of a strict queue, which nobody passes. Elsewhere refused jobs hold up nobody."""
    if after.state.book.tree.policy(queue).order is not Order.STRICT:
        return ()
    return tuple(p for p in after.pending.values() if p.workload.queue == queue)


def _keeping(after: AfterCycle) -> tuple[Pending, ...]:
    """Gangs that fit but for pods that are still landing: nobody later in the order comes to their place. A smaller
    probe may be earlier in the order, so until all have landed the answer may be too small, never too large.
    """
    pending, told = after.pending, after.plan.explanations
    return tuple(p for uid, p in pending.items() if uid in told and told[uid].primary.params.get("landing"))


def _closed(tree: QueueTree, queue: str) -> str | None:
    """The queue on its path by whose state nothing starts in it; None = it is open."""
    state = tree.effective_state(queue)
    if state is QueueState.OPEN:
        return None
    return next(path for path in tree.lineage(queue) if tree[path].state is state)


def pod_of(resource: str) -> Resources:
    """The smallest pod that is sensible to ask for one resource."""
    amount = {"cpu": 1000, "memory": 2**30, "ephemeral-storage": 2**30}.get(resource, 1)
    return {resource: amount, "pods": 1}

"""How much one job of a queue could start now: a probe job, given to the decision itself, on what the last plan left.

Nobody is evicted for a probe, and it leaves held room and reservations whole as any job does that runs without an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from queuer.domain.quantity import Resources
from queuer.domain.queue import Order
from queuer.domain.quota import Account, charge_of
from queuer.domain.workload import PodSet, Workload
from queuer.solver import bonds
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.explain.advice import WITHOUT_SOLVER
from queuer.solver.records import Pending
from queuer.solver.reserve import Reserver
from queuer.solver.standing import Standing
from queuer.solver.state import State
from queuer.solver.verified import UnsoundPlan

PROBE = "probe"


class Cap(StrEnum):
    """What keeps the probe from being larger."""

    LIMIT = "limit"  # a row of quota
    CAPACITY = "capacity"  # no node has room for one more pod
    LINE = "line"  # its queue is strict, and somebody waits in it already
    PLACEMENT = "placement"  # there is room, but in no arrangement: levels, reservations, landing pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a limit on the path leaves one workload of the queue. `live`: it is the live capacity."""

    queue: str
    account: Account
    limit: int
    room: int
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """In one flavor, by pods that ask for `requests`. `pods`: of the largest job that would start; `levels`: the same
    inside one domain of a level. `ancestor`: whose limit binds, where `cap` is a limit. `free`: by resource, on nodes
    of the flavor that may be used.
    """

    flavor: str
    requests: Resources
    pods: int
    levels: Mapping[str, int]
    cap: Cap
    ancestor: str | None
    bounds: tuple[Bound, ...]
    free: Resources


def headroom(
    standing: Standing, queue: str, requests: Resources, *, flavor: str, levels: bool = False
) -> Headroom:
    """Of an open leaf. `requests`: of one pod, of resources that some node has; `levels`: also by topology level."""
    return _Asked(standing, queue, requests, flavor).told(levels=levels)


def own(standing: Standing, queue: str, flavor: str, resource: str) -> tuple[int, int]:
    """What the queue is guaranteed and uses: of the flavor where its guarantee is by flavor, else of all together."""
    book = standing.state.book
    account = (flavor, resource) if book.guaranteed(queue, (flavor, resource)) else (None, resource)
    return book.guaranteed(queue, account), standing.state.claimed.used(queue, account)


class _Asked:
    def __init__(self, standing: Standing, queue: str, requests: Resources, flavor: str) -> None:
        self._after, self._standing = standing.after, standing
        self._queue, self._flavor = queue, flavor
        self._requests = {"pods": 1, **requests}
        self._ahead = _ahead(standing, queue)
        self._state = State(self._arrays(self._probe(1)), time=standing.now)
        bonds.resume(self._state)
        Reserver(self._state).resume()

    def told(self, *, levels: bool) -> Headroom:
        """All of it."""
        bounds, slots = self._bounds(), self._slots()
        tightest = min(bounds, key=lambda b: b.room // self._asks(b), default=None)
        quota = slots if tightest is None else tightest.room // self._asks(tightest)
        most = min(slots, quota)
        pods = self._largest(most)
        cap, ancestor = Cap.LINE if self._ahead and not pods and most else Cap.PLACEMENT, None
        if pods == slots or (tightest is not None and tightest.live and pods == quota):
            cap = Cap.CAPACITY
        elif tightest is not None and pods == quota:
            cap, ancestor = Cap.LIMIT, tightest.queue
        keys = self._state.snapshot.topology.keys if levels else ()
        return Headroom(
            flavor=self._flavor,
            requests=self._requests,
            pods=pods,
            levels={level: self._largest(pods, required=level) for level in keys},
            cap=cap,
            ancestor=ancestor,
            bounds=bounds,
            free=self._free(),
        )

    def _asks(self, bound: Bound) -> int:
        return self._requests[bound.account[1]]

    def _probe(self, pods: int, *, required: str | None = None) -> Pending:
        least = 1 if pods > 1 else None
        pod_set = PodSet(name="main", count=pods, min_count=least, requests=self._requests)
        workload = Workload(
            uid=PROBE, kind="Probe", namespace="", name=PROBE, queue=self._queue, pod_sets=(pod_set,),
            submitted=self._standing.now, required=required,
        )  # fmt: skip
        return Pending(workload=workload, avoid=self._elsewhere())

    def _arrays(self, probe: Pending) -> Arrays:
        return self._after.arrays(*self._ahead, probe)

    def _elsewhere(self) -> frozenset[str]:
        """Nodes of the other flavors."""
        nodes = self._standing.state.nodes
        return frozenset(nodes.names[i] for i in np.flatnonzero(~nodes.in_flavor[self._flavor]))

    def _largest(self, most: int, *, required: str | None = None) -> int:
        """The size at which a job of up to `most` pods would start, as large as it can."""
        if most < 1:
            return 0
        arrays = self._arrays(self._probe(most, required=required))
        now, seed = self._standing.now, self._standing.seed
        try:
            plan = decide(arrays.snapshot, now=now, seed=seed, budget=WITHOUT_SOLVER, arrays=arrays)
        except UnsoundPlan:  # nothing is promised by a plan that does not stand
            return 0
        started = next((a for a in plan.admissions if a.uid == PROBE), None)
        return 0 if started is None else sum(row.count for row in started.assignments)

    def _bounds(self) -> tuple[Bound, ...]:
        """What limits on the path leave, from the leaf up."""
        state, book = self._state, self._state.book
        accounts = charge_of({self._flavor: self._requests})
        rooms: dict[tuple[str, Account], int] = {}
        for account in accounts:
            for usage in state.usages():
                for path, room in usage.rooms(self._queue, account):
                    rooms[path, account] = min(room, rooms.get((path, account), room))
        found = []
        for path in book.lineage(self._queue):
            for account in accounts:
                limit = book.limit(path, account)
                if limit is not None:
                    live, room = book.is_live(path, account, limit), rooms[path, account]
                    found.append(Bound(queue=path, account=account, limit=limit, room=room, live=live))
        return tuple(found)

    def _slots(self) -> int:
        """Pods that fit on the nodes one by one, whatever is held or landing."""
        state, pod_set = self._state, self._probe(1).workload.pod_sets[0]
        need, open_to = state.nodes.need(pod_set), state.nodes.open_to(pod_set, self._flavor)
        return int(np.where(open_to, need.slots(state.free_now), 0).sum())

    def _free(self) -> Resources:
        state, nodes = self._state, self._state.nodes
        there = [(i, nodes.snapshot.nodes[i].node) for i in np.flatnonzero(nodes.in_flavor[self._flavor])]
        usable = [i for i, node in there if node.ready and not node.unschedulable]
        free = np.minimum(state.free_now[usable], state.free_later[usable]).clip(min=0).sum(axis=0)
        return {r: int(free[nodes.column[r]]) for r in self._requests}


def _ahead(standing: Standing, queue: str) -> tuple[Pending, ...]:
    """Who waits in a strict queue: nobody passes them. In others they were refused, and hold up nobody."""
    if standing.state.book.tree.policy(queue).order is not Order.STRICT:
        return ()
    return tuple(p for p in standing.after.pending.values() if p.workload.queue == queue)


def pod_of(resource: str) -> Resources:
    """The smallest pod that is sensible to ask for one resource."""
    amount = {"cpu": 1000, "memory": 2**30, "ephemeral-storage": 2**30}.get(resource, 1)
    return {resource: amount, "pods": 1}

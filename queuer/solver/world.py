"""World: nodes, work and queues at one moment. A plan is carried out on it, and time passes over it.

The questions about a cycle take the world that it leaves. Start estimates and the simulator roll one forward, decision
by decision. A world decides nothing, and nothing outside of it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf

from queuer.domain.assignments import Admission, Assignment
from queuer.domain.nodes import Node
from queuer.domain.quantity import Resources, add
from queuer.domain.queue import QueueTree
from queuer.domain.workload import GRACE, Workload
from queuer.solver.ends import end_of, expected_end
from queuer.solver.records import Admitted, Pending, Plan, Snapshot, Unbound

Pods = Mapping[str, Mapping[str, int]]
"""Pods by pod set and node."""
EndOf = Callable[[Admitted, float], float]
"""When a run ends, given the time at which all its pods are bound; inf = never."""


class World:
    """Changes in place. `time`: now, in seconds since the epoch; `pods`: pods of the work whose spread is known."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: float,
        landing: float | None = None,
        grace: float = GRACE,
        end_of: EndOf = lambda run, bound: expected_end(run, now=bound),
    ) -> None:
        """`landing`: seconds from a start until all pods are bound; None = pods stay unbound while the world is asked.

        Unless it is None, unbound pods of the snapshot take the first hosts of their pin with room, and are forgotten
        where there is none. `grace`: seconds from an eviction until the pods are gone.
        """
        self._base, self.time = snapshot, now
        self._landing, self._grace, self._end_of = landing, grace, end_of
        self.nodes = {state.node.name: state for state in snapshot.nodes}
        self.waiting = {pending.workload.uid: pending for pending in snapshot.pending}
        self.admitted: dict[str, Admitted] = {}
        self.returning: dict[str, Pending] = {}
        self.bonds, self.reservations = snapshot.bonds, snapshot.reservations
        self.pods: dict[str, Pods] = {}
        self.landings: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        for run in snapshot.admitted:
            self._run(run if landing is None else self._settled(run), bound=now)

    def snapshot(self) -> Snapshot:
        """The input of the next decision."""
        return replace(
            self._base,
            nodes=tuple(self.nodes.values()),
            admitted=tuple(self.admitted.values()),
            pending=tuple(self.waiting.values()),
            bonds=self.bonds,
            reservations=self.reservations,
        )

    @property
    def tree(self) -> QueueTree:
        """The queues."""
        return self._base.tree

    @tree.setter
    def tree(self, tree: QueueTree) -> None:
        self._base = replace(self._base, tree=tree)

    # A plan

    def apply(self, plan: Plan) -> None:
        """Start the gangs that the plan admits, evict its victims, take over its bonds and reservations."""
        for admission in plan.admissions:
            self._start(admission)
        for eviction in plan.evictions:
            self.evict(eviction.uid, by=eviction.beneficiary)
        self.bonds, self.reservations = plan.bonds, plan.reservations

    def _start(self, admission: Admission) -> None:
        uid, rows = admission.uid, admission.assignments
        pending = self.waiting.pop(uid)
        workload = pending.workload
        self.pods[uid] = {row.pod_set: row.nodes for row in rows}
        unbound = (
            Unbound(pod_set=row.pod_set, count=row.count, hosts=_hosts_of(row, self._nodes())) for row in rows
        )
        run = Admitted(
            workload=workload,
            counts={row.pod_set: row.count for row in rows},
            flavors={row.pod_set: row.flavor for row in rows},
            since=self.time,
            unbound=() if self._landing == 0 else tuple(unbound),
            expected_end=end_of(workload, start=self.time),
            displaced_by=pending.displaced_by,
        )
        bound = self.time + (self._landing or 0.0)
        self._run(run, bound=bound)
        if self._landing == 0:
            self._land(uid)
        elif self._landing is not None:
            self.landings[uid] = bound

    def evict(self, uid: str, *, by: str | None, first: bool = False) -> None:
        """The workload leaves, and waits again once its pods are gone. `by`: the gang for whose sake, if any."""
        displacers = frozenset[str]() if by is None else frozenset({by})
        workload = self.admitted[uid].workload
        self.returning[uid] = Pending(workload=workload, first=first, displaced_by=displacers)
        self._release(uid)

    # Work that comes and goes

    def arrive(self, pending: Pending) -> None:
        """A workload waits from now on."""
        self.waiting[pending.workload.uid] = pending

    def place(self, run: Admitted, pods: Pods) -> None:
        """A workload runs already, with bound pods."""
        uid = run.workload.uid
        self.pods[uid] = pods
        self._run(run, bound=run.since)
        self._land(uid)

    def delete(self, uid: str) -> None:
        """The workload is deleted, and its pods leave."""
        self.waiting.pop(uid, None)
        self.returning.pop(uid, None)
        if uid in self.admitted and not self.admitted[uid].releasing:
            self._release(uid)

    def update(self, workload: Workload) -> None:
        """The workload has another estimate, or is held or released."""
        uid = workload.uid
        for rows in (self.waiting, self.returning):
            if uid in rows:
                rows[uid] = replace(rows[uid], workload=workload)
        if uid in self.admitted:
            run = self.admitted[uid]
            end = end_of(workload, start=run.since)
            self.admitted[uid] = replace(run, workload=workload, expected_end=end)

    def _run(self, run: Admitted, *, bound: float) -> None:
        uid = run.workload.uid
        self.admitted[uid], self.ends[uid] = run, self._end_of(run, bound)

    def _release(self, uid: str) -> None:
        if uid in self.landings:
            self._land(uid)
        at = self.time + self._grace
        self.admitted[uid], self.ends[uid] = replace(self.admitted[uid], releasing=True, gone_by=at), at

    # Nodes

    def cordon(self, name: str, *, unschedulable: bool) -> None:
        """Nothing new may land on the node, or may again."""
        state = self.nodes[name]
        self.nodes[name] = replace(state, node=replace(state.node, unschedulable=unschedulable))

    def lose(self, name: str) -> list[str]:
        """The node is gone with its pods. Running work that had pods there is evicted; returns its uids."""
        del self.nodes[name]
        evicted = []
        for uid, pods in self.pods.items():
            if any(name in nodes for nodes in pods.values()):
                left = {of: {n: c for n, c in nodes.items() if n != name} for of, nodes in pods.items()}
                self.pods[uid], run = left, self.admitted[uid]
                self.admitted[uid] = replace(
                    run,
                    counts={of: sum(left.get(of, {}).values()) for of in run.counts},
                    bound={host: amounts for host, amounts in run.bound.items() if host != name},
                )
                if not run.releasing:
                    evicted.append(uid)
        for uid in evicted:
            self.evict(uid, by=None, first=True)
        return evicted

    def to_land(self) -> dict[str, Resources]:
        """Amounts by node of the pods that are planned there and not bound yet."""
        found: dict[str, Resources] = {}
        for uid in self.landings:
            for host, amounts in self._planned(uid).items():
                found[host] = add(found.get(host, {}), amounts)
        return found

    # Time

    def moments(self) -> Iterator[float]:
        """Times at which a decision may come out differently: ends, landings, rights to evict, bonds, reservations."""
        yield from (end for end in self.ends.values() if end < inf)
        yield from self.landings.values()
        yield from (bond.deadline for bond in self.bonds)
        yield from (row.start for row in self.reservations)
        for run in self.admitted.values():
            if not run.releasing and run.workload.queue in self.tree:
                yield run.since + (self.tree.policy(run.workload.queue).min_runtime or 0.0)

    def pass_to(self, time: float) -> list[Admitted]:
        """Let time pass: pods land, runs end, evicted work waits again. Returns the work whose pods are gone."""
        self.time = time
        gone = [uid for uid, end in self.ends.items() if end <= time]
        for uid in [uid for uid, at in self.landings.items() if at <= time]:
            self._land(uid)
        return [self.leave(uid) for uid in gone]

    def leave(self, uid: str) -> Admitted:
        """The pods of a workload are gone. An evicted one waits again. Returns the run."""
        run = self.admitted.pop(uid)
        del self.ends[uid]
        self.pods.pop(uid, None)
        self.landings.pop(uid, None)
        for host, amounts in run.bound.items():
            self._use(host, amounts, times=-1)
        if uid in self.returning:
            self.waiting[uid] = self.returning.pop(uid)
        return run

    def _land(self, uid: str) -> None:
        """All pods are bound where they are planned."""
        self.landings.pop(uid, None)
        bound = self._planned(uid)
        for host, amounts in bound.items():
            self._use(host, amounts)
        self.admitted[uid] = replace(self.admitted[uid], bound=bound, unbound=())

    def _planned(self, uid: str) -> dict[str, Resources]:
        bound: dict[str, Resources] = {}
        pods = self.pods[uid]
        for pod_set in self.admitted[uid].workload.pod_sets:
            for host, count in pods.get(pod_set.name, {}).items():
                bound[host] = add(bound.get(host, {}), pod_set.requests, times=count)
        return bound

    def _settled(self, run: Admitted) -> Admitted:
        sets = {p.name: p for p in run.workload.pod_sets}
        bound = dict(run.bound)
        for loose in run.unbound:
            asked, left = sets[loose.pod_set], loose.count
            for host in (name for name in loose.hosts if name in self.nodes):
                there, used = self.nodes[host].node.allocatable, self.nodes[host].used
                slots = [(there.get(r, 0) - used.get(r, 0)) // n for r, n in asked.requests.items() if n]
                count = max(min([left, *slots, *([1] if asked.exclusive_host else [])]), 0)
                if count:
                    self._use(host, asked.requests, times=count)
                    bound[host] = add(bound.get(host, {}), asked.requests, times=count)
                    left -= count
        return replace(run, bound=bound, unbound=())

    def _use(self, host: str, amounts: Resources, *, times: int = 1) -> None:
        if host in self.nodes:
            state = self.nodes[host]
            self.nodes[host] = replace(state, used=add(state.used, amounts, times=times))

    def _nodes(self) -> Iterator[Node]:
        return (state.node for state in self.nodes.values())


def _hosts_of(assignment: Assignment, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Where kube-scheduler may put the pods: the hosts of the pin, else all nodes under its selector."""
    if assignment.hosts is not None:
        return assignment.hosts
    wanted = assignment.selector.items()
    return tuple(node.name for node in nodes if wanted <= node.labels.items())

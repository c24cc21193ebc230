"""Memory: nodes, pods, jobs and namespaces as watched, workloads as stored, the configuration.

No I/O. Each change says what follows: a workload to look at again (`touch`), or a decision that may now
come out differently (`reconsider`). Nothing is lost with it: it is rebuilt from the database and by
listing at each start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice

from queuer.controller.memory.lines import Lines, Turns
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.pods import Maker, PodIndex, PodView, failure_of
from queuer.controller.memory.quarantine import Quarantine
from queuer.domain.assignments import Bond, Reservation
from queuer.domain.capacity import Use, allocatable, exceeds, live_capacity, lost_in_use
from queuer.domain.estimates import Estimates, News
from queuer.domain.nodes import Node
from queuer.domain.past_use import Past
from queuer.domain.quantity import Resources, add
from queuer.domain.reasons import Explanation
from queuer.domain.rules import Rules
from queuer.domain.workload import State, Workload
from queuer.solver.explain.unstartable import Outlook
from queuer.store.tables import NotAsked


class ClusterState:
    """The controller's memory.

    `on_change` is called, cheaply and often, when there is something new to look at. `jobs`: those that are ours to
    read; `elsewhere`: those with our label in namespaces that did not opt in. `revision`: the configuration that was
    looked at last: that of `rules`, or a newer one that cannot be read. `moving`: uids of workloads that are landing,
    leaving, missing pods or giving some back. `timed`: of those that wait with a time limit on something. `holds`: of
    those that are charged. `bound`: of those with a bond. `unstartable`: see `Live`. `unread`: jobs to read; `untold`:
    reasons that are still to be written, by uid. `commanded`: whether commands wait in the database. `failures`: about
    the first pod of a charged workload that failed or went with its node, until it is replaced. `refusals`: of one that
    lands, the API server's words on pods that it never makes.
    """

    def __init__(self, *, on_change: Callable[[], None] = lambda: None) -> None:
        self.nodes: dict[str, Node] = {}
        self._allocatable: Mapping[str, Resources] | None = None  # None = to be summed anew
        self._overused: set[str] = set()  # names of nodes, those that are gone too
        self._outlook: Outlook | None = None
        self.pods = PodIndex()
        self.jobs: dict[str, JobView] = {}
        self.elsewhere: dict[str, JobView] = {}
        self.live: dict[str, Live] = {}
        self.rules = Rules()
        self.revision = self.rules.revision
        self.bonds: tuple[Bond, ...] = ()
        self.bound = frozenset[str]()
        self.reservations: tuple[Reservation, ...] = ()
        self.estimates = Estimates()
        self.past: Past = {}
        self.moving: set[str] = set()
        self.timed: set[str] = set()
        self.holds: set[str] = set()
        self.unstartable: set[str] = set()
        self.touched: set[str] = set()
        self.unread = Turns()
        self.untold: dict[str, Explanation] = {}
        self.lines = Lines(lambda queue: self.rules.max_pending(queue), self._can_never_start)
        self.quarantine = Quarantine()
        self.commanded = False
        self.failures: dict[str, str] = {}
        self.refusals: dict[str, str] = {}
        self.stale = True
        self._on_change = on_change

    # -- what was heard of the cluster

    def node_changed(self, node: Node) -> None:
        """A node came, or its labels, taints, cordon or capacity changed."""
        old = self.nodes.get(node.name)
        if old != node:
            self.nodes[node.name] = node
            ahead = old is None or replace(old, ready=node.ready, unschedulable=node.unschedulable) != node
            self._node_moved(node.name, ahead=ahead)

    def node_gone(self, name: str) -> None:
        """A node was deleted."""
        if self.nodes.pop(name, None) is not None:
            self._node_moved(name, ahead=True)

    def _node_moved(self, name: str, *, ahead: bool) -> None:
        self._allocatable = None
        self._weigh(name)
        if ahead:
            self._look_ahead()
        self.reconsider()

    def _weigh(self, name: str | None) -> None:
        """Look whether more is used on a node than it has."""
        if name is not None and exceeds(self.pods.used(name), self.nodes.get(name)):
            self._overused.add(name)
        else:
            self._overused.discard(name or "")

    def _look_ahead(self) -> None:
        """Workloads that could never start may now, or the other way round."""
        self._outlook = None
        self.read_again(self.unstartable)

    def pod_changed(self, pod: PodView) -> None:
        """A pod came or changed."""
        old = self.pods.put(pod)
        self._pod_moved(old, pod)

    def made(self, uid: str, maker: Maker, *, namespace: str) -> None:
        """An object is known to be made of a job: its pods, those that come too, are pods of that."""
        for pod in self.pods.made(uid, maker, namespace=namespace):
            self._pod_moved(pod, pod)

    def pod_gone(self, uid: str) -> None:
        """A pod object is no more."""
        self._pod_moved(self.pods.remove(uid), None)

    def _pod_moved(self, old: PodView | None, new: PodView | None) -> None:
        owners = {owner for pod in (old, new) if pod is not None and (owner := self._owner_of(pod))}
        for owner in owners:
            self.touch(owner)
            if owner in self.holds and (said := failure_of(old, new, self.nodes)):
                self.failures.setdefault(owner, said)
        was, now = (pod.charged_to if pod is not None else None for pod in (old, new))
        for name in {was, now}:
            self._weigh(name)
        # A pod of ours that is bound takes what was already set aside for it; every other move changes what
        # is free.
        resized = old is not None and new is not None and old.requests != new.requests
        if resized or (was != now and not (was is None and owners & self.live.keys())):
            self.reconsider()

    def _owner_of(self, pod: PodView) -> str | None:
        """The job that it belongs to, if we know it. One of another namespace it cannot belong to, whatever it says."""
        if pod.owner is None:
            return None
        live, job = self.live.get(pod.owner), self.jobs.get(pod.owner)
        place = live.workload.namespace if live is not None else job.namespace if job is not None else None
        return pod.owner if place == pod.namespace else None

    def job_changed(self, job: JobView) -> None:
        """A queued job came or changed."""
        self.elsewhere.pop(job.uid, None)
        self.jobs[job.uid] = job
        self.unread.add(job.uid, job.namespace)
        self.touch(job.uid)

    def job_elsewhere(self, job: JobView) -> None:
        """A job with our label in a namespace that did not opt in. Nothing that it says is read, its admission
        included. Where its namespace took part before, what it holds is followed to the end, and its place is kept.
        """
        self.elsewhere[job.uid] = job
        self._follow_elsewhere(job.uid)

    def _follow_elsewhere(self, uid: str) -> None:
        live = self.live.get(uid)
        if live is not None and live.charged:
            self.jobs[uid] = self.elsewhere[uid]
            self.touch(uid)
        elif self.jobs.pop(uid, None) is not None or live is not None:
            self.touch(uid)

    def job_gone(self, uid: str) -> None:
        """A job object is no more."""
        self.elsewhere.pop(uid, None)
        if self.jobs.pop(uid, None) is not None or uid in self.live:
            self.touch(uid)

    def holding(self, workload: Workload, *, now: float, lost_after: float) -> tuple[PodView, ...]:
        """Pods of a job, without those given up: they were to go long ago, and their node does not let them."""
        return tuple(
            pod for pod in self.pods.of(workload)
            if not self.given_up(pod.node, pod.deleted, now=now, lost_after=lost_after)
        )  # fmt: skip

    def given_up(self, node: str | None, deleted: float | None, *, now: float, lost_after: float) -> bool:
        """Whether a pod on this node that was to go at this time is lost with its node."""
        if node is None or deleted is None or now < deleted + lost_after:
            return False
        there = self.nodes.get(node)
        return there is None or not there.ready

    # -- what was decided and stored

    def put(self, live: Live) -> None:
        """Take over a workload as it now is in the database."""
        self.live[live.uid] = live
        if not live.charged:
            self.failures.pop(live.uid, None)
            self.refusals.pop(live.uid, None)
        self._file(live)
        self._line_up(live)
        if live.uid in self.elsewhere:
            self._follow_elsewhere(live.uid)
        self.touch(live.uid)

    def _line_up(self, live: Live) -> None:
        """Give it its place in line, or take it away. Jobs whose reason changes by that are read again."""
        others = self.lines.put(live) if live.in_line else self.lines.discard(live.uid)
        if (live.uid in self.lines.over_max_pending) != (live.not_asked is NotAsked.OVER_MAX_PENDING):
            others.append(live.uid)
        self.read_again(others)

    def _can_never_start(self, live: Live) -> bool:
        """Whether that was told, and holds on all of its flavors: the word of a decision may be of one."""
        return live.unstartable and self.outlook.unstartable(live.workload) is not None

    def _file(self, live: Live) -> None:
        """Keep the short lists: who is landing, leaving or missing pods, waits for a time to pass, holds something."""
        due = live.placement is not None and live.placement.due is not None
        moving = due or live.short is not None or (live.charged and live.state is not State.RUNNING)
        timed = live.state.waiting and (bool(live.avoid) or live.rest is not None)
        for listed, members in (
            (moving, self.moving), (timed, self.timed), (live.charged, self.holds), (live.unstartable, self.unstartable)
        ):  # fmt: skip
            (members.add if listed else members.discard)(live.uid)

    def hold(self, bonds: tuple[Bond, ...], reservations: tuple[Reservation, ...]) -> None:
        """Hold these places from now on. A gang without its bond is subject to `maxPending` again."""
        before, self.bound = self.bound, frozenset(bond.uid for bond in bonds)
        self.bonds, self.reservations = bonds, reservations
        self.read_again((before - self.bound) & self.lines.over_max_pending)

    def drop(self, uid: str) -> None:
        """Forget a workload that has ended and holds nothing."""
        self.live.pop(uid, None)
        self.read_again(self.lines.discard(uid))
        self.quarantine.forget(uid)
        self.untold.pop(uid, None)
        self.refusals.pop(uid, None)
        self.failures.pop(uid, None)
        for members in (self.moving, self.timed, self.holds, self.unstartable, self.touched):
            members.discard(uid)

    def restore(
        self,
        lives: Iterable[Live],
        *,
        rules: Rules,
        bonds: tuple[Bond, ...] = (),
        reservations: tuple[Reservation, ...] = (),
    ) -> None:
        """Replace everything that was decided and stored; what was heard of the cluster stays."""
        self.live = {live.uid: live for live in lives}
        self.moving, self.timed, self.holds, self.unstartable = set(), set(), set(), set()
        for live in self.live.values():
            self._file(live)
        self.rules, self.revision = rules, rules.revision
        self.hold(bonds, reservations)
        self._allocatable = self._outlook = None
        self.lines.rebuild(live for live in self.live.values() if live.in_line)
        self.quarantine, self.untold, self.failures, self.refusals = Quarantine(), {}, {}, {}
        for uid in self.elsewhere:
            self._follow_elsewhere(uid)
        self.unread.clear()
        self.read_again(self.jobs)
        self.touched = {*self.live, *self.jobs}
        self.reconsider()

    def configure(self, rules: Rules) -> None:
        """Take over a new configuration.

        Every waiting job is read again, since what it names may exist now.
        """
        if rules == self.rules:
            return
        self.rules, self.revision = rules, rules.revision
        self._allocatable = self._outlook = None
        self.lines.rebuild()
        self.read_again(self.jobs)
        self.reconsider()

    def read_again(self, uids: Iterable[str]) -> None:
        """Read these jobs anew where they wait: something that they name may have changed."""
        for uid in uids:
            job, live = self.jobs.get(uid), self.live.get(uid)
            if job is not None and (live is None or live.state.waiting):
                self.unread.add(uid, job.namespace)
        self._on_change()

    # -- what failed

    def quarantine_one(self, uid: str, error: Exception, *, now: float) -> None:
        """The handling of this workload failed: leave it alone for a while, and tell why where it waits."""
        why = self.quarantine.put(uid, error, now=now)
        live = self.live.get(uid)
        if live is None:
            self.untold[uid] = why
        elif live.state.waiting:
            self.tell(live, why)
        self.reconsider()

    def try_again(self, *, now: float) -> list[str]:
        """Look again at workloads that were quarantined long enough; returns their uids."""
        found = self.quarantine.due(now)
        for uid in found:
            live = self.live.get(uid)
            if live is not None and live.state.waiting:
                self.put(replace(live, explanation=None))  # what was told of it holds no more
                self.reconsider()
            self.read_again([uid])
            self.touch(uid)
        return found

    # -- what is still to be written

    def tell(self, live: Live, why: Explanation) -> None:
        """Another reason, which is still to be written."""
        self.put(replace(live, explanation=why))
        self.untold[live.uid] = why

    def take_untold(self, most: int) -> dict[str, Explanation]:
        """Reasons to write, `most` at most, without those that something newer is known of."""
        found = dict[str, Explanation]()
        while self.untold and len(found) < most:
            uid, why = self.untold.popitem()
            live = self.live.get(uid)
            if live.explanation == why if live is not None else self.quarantine.why(uid) is why:
                found[uid] = why
        return found

    # -- what follows

    def command(self) -> None:
        """A command waits in the database."""
        self.commanded = True
        self._on_change()

    def touch(self, uid: str) -> None:
        """Have this workload looked at again."""
        self.touched.add(uid)
        self._on_change()

    def reconsider(self) -> None:
        """A decision may come out differently from now on."""
        self.stale = True
        self._on_change()

    def learn(self, workload: Workload, seconds: float) -> None:
        """A run has ended by itself. Jobs like it are estimated anew when that tells more of them."""
        if (news := self.estimates.learn(workload, seconds)) is not None:
            self.estimate(news)

    def estimate(self, news: News | None = None) -> None:
        """Estimate the workloads that these news are about, or all, by what was learned."""
        for uid, live in self.live.items():
            if news is None or news.concerns(live.workload):
                found = self.estimates.estimated(replace(live.workload, estimate_runs=0))
                if found != live.workload:
                    self.live[uid] = replace(live, workload=found)

    def take_touched(self, most: int) -> tuple[str, ...]:
        """The workloads to look at: all that hold something, and `most` of the others at most. Sorted, so that runs are
        alike. Quarantined ones are not looked at.
        """
        others = self.touched - self.holds
        taken = (self.touched & self.holds).union(islice(others, most))
        self.touched -= taken
        return tuple(uid for uid in sorted(taken) if uid not in self.quarantine)

    def take_unread(self, most: int) -> list[str]:
        """Jobs to read (again), `most` at most, by turns of the namespaces."""
        return [uid for uid in self.unread.take(most) if uid not in self.quarantine]

    def take_stale(self) -> bool:
        """Whether something has changed since the last call that a decision depends on."""
        was, self.stale = self.stale, False
        return was

    @property
    def capacity_by_flavor(self) -> Mapping[str, Mapping[str, int]]:
        """Live capacity by flavor and resource. Nodes without a flavor are not counted."""
        if self._allocatable is None:
            self._allocatable = allocatable(self.nodes.values(), self.rules.flavors)
        if not self._overused:
            return self._allocatable
        held, tree = (self.live[uid] for uid in self.holds), self.rules.tree
        uses = (self._use_of(live) for live in held if live.workload.queue in tree)
        return live_capacity(self._allocatable, lost_in_use(self.nodes, self.rules.flavors, uses))

    def _use_of(self, live: Live) -> Use:
        """Use of a charged workload on nodes where more is used than they have."""
        assert live.placement is not None
        bound: dict[str, Resources] = {}
        for pod in self.pods.of(live.workload):
            if pod.charged_to in self._overused:
                bound[pod.charged_to] = add(bound.get(pod.charged_to, {}), pod.requests)
        return Use(live.workload, {a.pod_set: a.flavor for a in live.placement.assignments}, bound)

    @property
    def outlook(self) -> Outlook:
        """Tells which workloads could start one day on these nodes, by this configuration."""
        if self._outlook is None:
            self._outlook = Outlook((self.nodes[name] for name in sorted(self.nodes)), self.rules)
        return self._outlook

"""Jobs that were started beside the queue: by an administrator's break-glass, or before this database
existed.

They run already, so the only question is what they hold. They are charged as they are, reported, and from then on
treated like any admitted gang. A queue is charged only for jobs that could have waited in it: nobody spends another's
quota by a job's own word. The rest counts on its nodes alone, and is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.health.metrics import Metrics
from queuer.controller.landing.settle import admitted
from queuer.controller.ledger.record import undecided
from queuer.controller.ledger.round import Round, charges, effect
from queuer.controller.logs import logger
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.term import ADOPTED, Term
from queuer.domain.assignments import Assignment, Placement
from queuer.domain.nodes import DEFAULT_FLAVOR, flavor_of
from queuer.domain.usable import check_queue, check_user
from queuer.domain.workload import PodSet
from queuer.store.tables import EntryKind

log = logger("adoption")


class Adopter:
    """Charges what runs without having been admitted, and reports it."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._found = Found(term.state, term.metrics)

    async def look(self, uids: Sequence[str]) -> None:
        """Charge those of these workloads that are to be."""
        term = self._term
        if lives := self._found.among(uids):
            changes = adopt(
                lives, state=term.state, jobs=term.jobs, epoch=term.epoch, cycle=term.next_cycle(), now=term.clock(),
                new_id=term.new_id,
            )  # fmt: skip
            await term.commit_each(changes)


class Found:
    """Finds jobs that run while the database says that they wait. Those that are not charged are reported once."""

    def __init__(self, state: ClusterState, metrics: Metrics) -> None:
        self._state, self._metrics = state, metrics
        self._reported: set[str] = set()

    def among(self, uids: Sequence[str]) -> tuple[Live, ...]:
        """Those of these workloads that are to be charged."""
        running = [live for uid in uids if (live := self._running(uid)) is not None]
        refused = {live.uid: why for live in running if (why := objection(live, self._state)) is not None}
        for uid in sorted(refused.keys() - self._reported):
            log.warning("runs beside the queues, not charged", workload=uid, said=refused[uid])
            self._metrics.adoptions_refused.inc()
        self._reported = self._reported.difference(uids) | refused.keys()
        return tuple(live for live in running if live.uid not in refused)

    def _running(self, uid: str) -> Live | None:
        # Memory has the jobs of namespaces that opted in alone, beside those that were admitted before.
        live, job = self._state.live.get(uid), self._state.jobs.get(uid)
        if live is None or job is None or not live.state.waiting:
            return None
        return None if job.suspended or job.deleting or job.outcome is not None else live


def objection(live: Live, state: ClusterState) -> str | None:
    """Why a job that runs is not charged to the queue that it names, None if it is."""
    if not live.workload.pod_sets:
        return "it cannot be read" if live.explanation is None else live.explanation.primary.text
    tree, job = state.rules.tree, state.jobs.get(live.uid)
    groups = () if job is None else job.groups
    refused = check_queue(live.workload, tree, groups) or check_user(live.workload, groups, tree)
    return None if refused is None else refused.primary.text


def adopt(
    lives: tuple[Live, ...],
    *,
    state: ClusterState,
    jobs: ClusterJobs,
    epoch: int,
    cycle: int,
    now: float,
    new_id: Callable[[], str],
) -> Round:
    """The round that charges these as they run."""
    changes = undecided(state, cycle=cycle, now=now, trigger=ADOPTED)
    for live in lives:
        with changes.isolate(live.uid):
            assignments = tuple(_as_it_is(pod_set, live, state) for pod_set in live.workload.pod_sets)
            placement = Placement(id=new_id(), epoch=epoch, cycle=cycle, at=now, assignments=assignments)
            after = admitted(live, placement)
            mark = effect(EntryKind.ADMIT, after, jobs.adopt(live, placement))
            changes.put(live.uid, after=after, effects=[mark], charges=charges(after, at=now))
    return changes


def _as_it_is(pod_set: PodSet, live: Live, state: ClusterState) -> Assignment:
    """Where its pods are; those that are not bound yet are counted on some node, unpinned."""
    bound = Counter(
        name
        for pod in state.pods.of(live.workload)
        if pod.pod_set == pod_set.name and (name := pod.charged_to)
    )
    nodes: dict[str, int] = {}
    for name, count in sorted(bound.items()):
        taken = min(count, pod_set.count - sum(nodes.values()))
        if taken:
            nodes[name] = taken
    somewhere = next(iter(nodes), None) or next(iter(sorted(state.nodes)), "")
    missing = pod_set.count - sum(nodes.values())
    if missing > 0:
        nodes[somewhere] = nodes.get(somewhere, 0) + missing
    node = state.nodes.get(somewhere)
    flavor = flavor_of(node, state.rules.flavors) if node is not None else None
    return Assignment(pod_set=pod_set.name, flavor=flavor or DEFAULT_FLAVOR, nodes=nodes)

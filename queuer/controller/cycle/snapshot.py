"""The controller's memory as the immutable snapshot that a decision is made from."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from queuer.controller.landing.steps import missing
from queuer.controller.landing.tally import tally
from queuer.controller.ledger.record import outside
from queuer.controller.ledger.round import Isolated, isolate
from queuer.controller.memory.live import Live, gone_by, lingers
from queuer.controller.memory.pods import MOST_ON_NODE, PodView
from queuer.controller.memory.state import ClusterState
from queuer.domain import per_user
from queuer.domain.assignments import Assignment, Placement
from queuer.domain.nodes import DEFAULT_FLAVOR, Flavor, Node, SchedulingTerms
from queuer.domain.per_user import Shares, Waiting
from queuer.domain.quantity import add, capped
from queuer.domain.reasons import Explanation
from queuer.domain.workload import State
from queuer.solver.ends import end_of
from queuer.solver.records import Admitted, NodeState, Pending, Snapshot, Unbound


def take(
    state: ClusterState,
    *,
    now: float,
    over_quota: Container[str] = (),
    over_limit: Collection[str] = (),
    smaller: Mapping[str, Live] = MappingProxyType({}),
) -> Snapshot:
    """A snapshot of everything a decision depends on. Shares nothing that changes later.

    `over_quota`, `over_limit`: uids of waiting workloads that are not offered, the latter as their users have
    what they may. `smaller`: those that are offered with fewer pods than they ask for, by uid.
    Raises Isolated naming a workload of which no entry can be made; a quarantined one counts in full.
    """
    rules = state.rules
    # Work in a queue that is not there (it was started beside the queues) counts on its nodes alone.
    charged = sorted(uid for uid in state.holds if state.live[uid].workload.queue in rules.tree)
    waiting = sorted(
        uid
        for uid, live in state.live.items()
        if uid not in over_quota and uid not in over_limit and is_candidate(live, state, now=now)
    )
    admitted = tuple(_counted(state.live[uid], state, now=now) for uid in charged)
    pending = tuple(_pending(smaller.get(uid, state.live[uid]), now=now) for uid in waiting)
    known = {p.workload.uid for p in pending} | {a.workload.uid for a in admitted}
    return Snapshot(
        nodes=tuple(
            NodeState(node=node, used=capped(state.pods.used(name), MOST_ON_NODE))
            for name, node in sorted(state.nodes.items())
        ),
        tree=rules.tree,
        topology=rules.topology,
        flavors=rules.flavors,
        admitted=admitted,
        pending=pending,
        over_limit=tuple(
            replace(_pending(live, now=now), unstartable=live.unstartable)
            for live in (state.live[uid] for uid in sorted(over_limit))
        ),
        bonds=tuple(b for b in state.bonds if b.uid in known),
        reservations=tuple(r for r in state.reservations if r.uid in known),
        past=state.past,
        outside=outside(state),
    )


def over_user_limit(waiting: Iterable[Live], state: ClusterState) -> dict[str, Explanation]:
    """The waiting workloads that are not asked about because their users have what they may, and why.

    A bound gang is never one of them: work was lost for its place. Raises Isolated.
    """
    tree = state.rules.tree
    if not tree.per_user:
        return {}
    shares = Shares(tree)
    for live in (state.live[uid] for uid in state.holds):
        assert live.placement is not None
        # A quarantined workload is not named again: the decision would never be asked.
        with suppress(Exception) if live.uid in state.quarantine else isolate(live.uid):
            whole = {p.name: p.count for p in live.workload.pod_sets}
            shares.use(live.workload, {**whole, **live.placement.held})
    rows = (
        Waiting(
            workload=live.workload,
            first=live.first,
            bound=live.uid in state.bound,
            unstartable=live.unstartable,
            why=live.explanation,
        )
        for live in waiting
    )
    return per_user.over_user_limit(rows, shares, tree, guard=isolate)


def is_candidate(live: Live, state: ClusterState, *, now: float) -> bool:
    """Whether the solver is asked about this workload. A bound gang stays in line: work was lost for its place."""
    resting = live.rest is not None and live.rest > now
    return (
        live.in_line
        and not resting
        and (live.uid not in state.lines.over_max_pending or live.uid in state.bound)
        and live.uid not in state.quarantine
    )


def _pending(live: Live, *, now: float) -> Pending:
    avoid = frozenset(node for node, until in live.avoid.items() if until > now)
    return Pending(
        workload=live.workload, avoid=avoid, first=live.goes_first(now=now), displaced_by=live.displaced_by,
        failed=live.failures > 1,
    )  # fmt: skip


def _counted(live: Live, state: ClusterState, *, now: float) -> Admitted:
    """An entry of a workload that holds something; of its charge alone where a quarantined workload cannot be read."""
    try:
        return _admitted(live, state, now=now)
    except Exception as error:
        if live.uid not in state.quarantine:
            raise Isolated({live.uid: error}) from error
    return _charge_of(live)


def _charge_of(live: Live) -> Admitted:
    """All pods of a set of which no charge is known. Nobody evicts it: what that would free is not known either."""
    assert live.placement is not None
    sets, held, flavors = live.workload.pod_sets, live.placement.held, _flavors(live.placement)
    return Admitted(
        workload=replace(live.workload, preemptible=False),
        counts={p.name: held.get(p.name, p.count) for p in sets},
        flavors={p.name: flavors.get(p.name, DEFAULT_FLAVOR) for p in sets},
        since=live.placement.at,
    )


def _flavors(placement: Placement) -> dict[str, str]:
    return {a.pod_set: a.flavor for a in placement.assignments}


def _admitted(live: Live, state: ClusterState, *, now: float) -> Admitted:
    placement = live.placement
    assert placement is not None
    pods, held, flavors = state.pods.of(live.workload), placement.held, _flavors(placement)
    job, workload = state.jobs.get(live.uid), live.workload
    stays = lingers(live, job)
    releasing = not stays and (live.state is State.EVICTING or live.state.ended)
    since = live.running or placement.at
    if job is not None and not job.restarts and workload.preemptible:
        workload = replace(workload, preemptible=False)
    return Admitted(
        workload=workload,
        counts={p.name: held[p.name] for p in live.workload.pod_sets},
        flavors={p.name: flavors[p.name] for p in live.workload.pod_sets},
        since=since,
        bound=_bound(pods),
        checkpoint=now if stays else None,  # its work is done
        unbound=() if releasing or stays else _unbound(live, pods, state),
        releasing=releasing,
        gone_by=gone_by(live, pods) if releasing else None,
        expected_end=None if stays else end_of(live.workload, start=since),
        displaced_by=live.displaced_by,
        evicted=len(live.lately(now=now)),
    )


def _bound(pods: tuple[PodView, ...]) -> Mapping[str, Mapping[str, int]]:
    bound: dict[str, Mapping[str, int]] = {}
    for pod in pods:
        node = pod.charged_to
        if node is not None:
            bound[node] = capped(add(bound.get(node, {}), pod.requests), MOST_ON_NODE)
    return bound


def _unbound(live: Live, pods: tuple[PodView, ...], state: ClusterState) -> tuple[Unbound, ...]:
    """Pods still to land, wherever kube-scheduler may put them inside the pin."""
    placement = live.placement
    assert placement is not None
    short = missing(placement, tally(pods), state.jobs.get(live.uid))
    sets = {p.name: p for p in live.workload.pod_sets}

    def hosts(assignment: Assignment) -> tuple[str, ...]:
        asked = sets[assignment.pod_set]
        pinned = hosts_in_pin(assignment, asked.terms, nodes=state.nodes, flavors=state.rules.flavors)
        if not asked.exclusive_host:
            return pinned
        own = {p.charged_to for p in pods if p.pod_set == asked.name and p.deleted is None}
        return tuple(host for host in pinned if host not in own)

    return tuple(
        Unbound(pod_set=a.pod_set, count=short[a.pod_set], hosts=hosts(a))
        for a in placement.assignments
        if short[a.pod_set]
    )


def hosts_in_pin(
    assignment: Assignment, terms: SchedulingTerms, *, nodes: Mapping[str, Node], flavors: tuple[Flavor, ...]
) -> tuple[str, ...]:
    """Names of the nodes that kube-scheduler may choose for a pod of this assignment, resources aside."""
    flavor = next((f for f in flavors if f.name == assignment.flavor), Flavor(name=DEFAULT_FLAVOR))
    pinned = SchedulingTerms(
        node_selector={**terms.node_selector, **assignment.selector},
        tolerations=(*terms.tolerations, *flavor.tolerations),
        affinity=terms.affinity,
    )
    names = nodes if assignment.hosts is None else assignment.hosts
    return tuple(sorted(name for name in names if name in nodes and nodes[name].accepts(pinned)))

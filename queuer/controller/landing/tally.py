"""The pods of one gang, counted: which are bound, run, have ended or are on their way out, and what they request.

The next step of a gang, its charge and its place in a snapshot are read off the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from queuer.controller.memory.pods import PodView
from queuer.domain.quantity import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Pods of one gang by pod set. `there`: not ended, bound or not, terminating ones included. `live`: all of them
    together. `unbound`: those of them on no node. `hosts`: bound ones by node. `problem`: a scheduler's message of
    one of them. `staying`: pods that nobody has told to go. `placed`: uids of all that are on nodes, or were until
    they ended. `failed`: about the first pod that failed or went with its node. `leaving`: until when the last of
    those that are told to go has to be gone, None = none is. `refused`: the API server's words on pods that it will
    never make.
    """

    bound: Mapping[str, int]
    running: Mapping[str, int]
    succeeded: Mapping[str, int]
    unbound: int
    live: int
    nodes: frozenset[str]
    staying: int = 0
    there: Mapping[str, int] = field(default_factory=dict)
    hosts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    problem: str = ""
    requests: Mapping[str, Resources] = field(default_factory=dict)
    placed: frozenset[str] = frozenset()
    leaving: float | None = None
    refused: str = ""
    failed: str = ""


def tally(pods: Iterable[PodView]) -> Tally:
    """Count a gang's pods."""
    bound: Counter[str] = Counter()
    running: Counter[str] = Counter()
    succeeded: Counter[str] = Counter()
    there: Counter[str] = Counter()
    requests: dict[str, Resources] = {}
    hosts: dict[str, Counter[str]] = {}
    nodes, placed = set[str](), set[str]()
    live, unbound, staying, problem = 0, 0, 0, ""
    leaving: float | None = None
    for pod in pods:
        role = pod.pod_set or ""
        if pod.node is not None:
            placed.add(pod.uid)
        if pod.succeeded:
            succeeded[role] += 1
        if pod.ended:
            continue
        live += 1
        there[role] += 1
        staying += pod.stays
        if pod.deleted is not None:
            leaving = max(pod.deleted, leaving or pod.deleted)
        if pod.node is None:
            unbound += 1
            problem = problem or pod.problem
            continue
        nodes.add(pod.node)
        if not pod.terminating:
            bound[role] += 1
            hosts.setdefault(role, Counter())[pod.node] += 1
            running[role] += pod.running
            requests[role] = larger(requests.get(role, pod.requests), pod.requests)
    return Tally(
        bound=bound, running=running, succeeded=succeeded, unbound=unbound, live=live, staying=staying,
        nodes=frozenset(nodes), there=there, problem=problem, requests=requests,
        hosts=hosts, placed=frozenset(placed), leaving=leaving,
    )  # fmt: skip


def larger(left: Resources, right: Resources) -> Resources:
    """The higher amount of each resource."""
    if left == right:
        return left
    return {r: max(left.get(r, 0), right.get(r, 0)) for r in {*left, *right}}

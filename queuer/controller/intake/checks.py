"""What makes a job unstartable as it is written: a sentence with the nearest right answer, before any
decision.

Such a job stays suspended and counted. It is read again when it or the configuration changes.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator

from queuer.controller.memory.live import Live
from queuer.controller.memory.state import Rules
from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import SYSTEM_CLASSES, QueueState, QueueTree
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import Workload
from queuer.kube.workloads import PRIORITY_CLASS, NamespaceFacts
from queuer.store.tables import Barred


def misconfigured(text: str, **params: object) -> Explanation:
    """The explanation of a job that only its owner, or a change of the queues, can mend."""
    return simple(Token.MISCONFIGURED, text, **params)


def check(
    workload: Workload, rules: Rules, nodes: Collection[Node], *, facts: NamespaceFacts, before: Live | None
) -> tuple[Barred, Explanation] | None:
    """What is wrong with the workload under these rules, None if nothing is. `before`: as it waited until now."""
    wrong = check_queue(workload, rules.tree)
    if wrong is None and (drained := _drained(workload, rules.tree, before=before)):
        return Barred.DRAINING, drained
    wrong = wrong or _priority(workload, rules.tree, facts) or _levels(workload, rules.topology, nodes)
    return None if wrong is None else (Barred.MISCONFIGURED, wrong)


def _drained(workload: Workload, tree: QueueTree, *, before: Live | None) -> Explanation | None:
    """Nothing new comes into a queue that drains; what waits there keeps its place."""
    path = workload.queue
    drains = next((q for q in tree.lineage(path) if tree[q].state is QueueState.DRAINING), None)
    if drains is None or (
        before is not None and before.workload.queue == path and before.barred is not Barred.DRAINING
    ):
        return None
    usable = [leaf for leaf in _usable(workload, tree) if tree.effective_state(leaf) is QueueState.OPEN]
    return misconfigured(
        f"queue {drains} is draining and takes no new jobs; "
        f"{f'from here use {_or(usable[:3])}' if usable else 'no other queue serves this namespace yet'}",
        queue=path, draining=drains, nearest=usable[:3],
    )  # fmt: skip


def highest_priority(queue: str, tree: QueueTree, facts: NamespaceFacts) -> int | None:
    """The most that a queue allows, None = anything. A class that is not there bounds like none at all: whoever names
    no class may still queue.
    """
    highest = tree.access(queue).max_priority if queue in tree else None
    return None if highest is None else facts.priorities.get(highest, facts.default_priority)


def _priority(workload: Workload, tree: QueueTree, facts: NamespaceFacts) -> Explanation | None:
    highest, most = tree.access(workload.queue).max_priority, highest_priority(workload.queue, tree, facts)
    if highest is None or most is None or workload.priority <= most:
        return None
    missing = "" if highest in facts.priorities else ", a PriorityClass that does not exist"
    allowed = sorted(
        (
            name
            for name, value in facts.priorities.items()
            if value <= most and not name.startswith(SYSTEM_CLASSES)
        ),
        key=lambda name: (-facts.priorities[name], name),
    )
    return misconfigured(
        f"priority {workload.priority} is above {most}, the most that queue {workload.queue} allows "
        f"(maxPriority {highest}{missing}); set the label {PRIORITY_CLASS} to {_or(allowed[:3]) or 'another class'}",
        queue=workload.queue, priority=workload.priority, highest=most, maxPriority=highest, nearest=allowed[:3],
    )  # fmt: skip


def check_queue(workload: Workload, tree: QueueTree) -> Explanation | None:
    """Why the workload's namespace cannot use the queue that it names, None if it can."""
    path = workload.queue
    if path not in tree:
        near = tree.nearest(path)
        usable = _usable(workload, tree)
        other = f"from here use {_or(usable[:3])}" if usable else f"no queue serves {workload.namespace} yet"
        meant = f"; did you mean {_or(near)}?" if near else f"; {other}"
        return misconfigured(f"queue {path} does not exist{meant}", queue=path, nearest=list(near))
    if not tree.is_leaf(path):
        leaves = [leaf for leaf in tree.leaves if leaf.startswith(f"{path}.")]
        return misconfigured(
            f"queue {path} has queues below it and takes no jobs itself; choose {_or(leaves[:3])}",
            queue=path, nearest=leaves[:3],
        )  # fmt: skip
    allowed = tree.namespaces(path)
    if workload.namespace not in allowed:
        usable = _usable(workload, tree)
        served = f"it serves {', '.join(allowed)}" if allowed else "it serves no namespace yet"
        instead = f"; from here use {_or(usable[:3])}" if usable else ""
        return misconfigured(
            f"namespace {workload.namespace} may not use queue {path}: {served}{instead}",
            queue=path, namespace=workload.namespace, nearest=usable[:3],
        )  # fmt: skip
    return None


def _usable(workload: Workload, tree: QueueTree) -> list[str]:
    """The leaves that the workload's namespace may use."""
    return [leaf for leaf in tree.leaves if workload.namespace in tree.namespaces(leaf)]


def _levels(workload: Workload, topology: Topology, nodes: Collection[Node]) -> Explanation | None:
    for field, level, required in _asked(workload):
        index = topology.find(level)
        if index is None:
            near = difflib.get_close_matches(level, topology.levels, n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            return misconfigured(
                f"{field} asks for level {level!r}, but the levels are {', '.join(topology.levels)}{meant}",
                field=field, level=level, levels=list(topology.levels), nearest=near,
            )  # fmt: skip
        key = topology.keys[index]
        if required and key != HOSTNAME and not any(key in node.labels for node in nodes):
            return misconfigured(
                f"{field} asks for level {level}, but no node carries its label {key}",
                field=field, level=level, label=key,
            )  # fmt: skip
    return None


def _asked(workload: Workload) -> Iterator[tuple[str, str, bool]]:
    """Every level that is asked for: where, its name, whether it must be."""
    asked = [("", workload.required, workload.preferred)]
    asked += [(f" of pod set {p.name}", p.required, p.preferred) for p in workload.pod_sets]
    for where, required, preferred in asked:
        if required is not None:
            yield f"topology-required{where}", required, True
        if preferred is not None:
            yield f"topology-preferred{where}", preferred, False


def _or(names: Collection[str]) -> str:
    return " or ".join(names)

"""The rules of intake: what its queue, its user's rights and the topology ask of a job before any decision.

The controller checks every job that it reads; the API checks a job that somebody only asks about. A fault is one
sentence with the nearest right answer. Only the job's owner, or a change of the queues, can mend it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from queuer.domain.errors import FieldProblem
from queuer.domain.fields import format_duration
from queuer.domain.keys import MAX_RUNTIME, PRIORITY_CLASS, QUEUE
from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import SYSTEM_CLASSES, QueueState, QueueTree
from queuer.domain.reasons import LONGEST, Explanation, Reason, Token, malformed, plural, simple
from queuer.domain.usable import check_queue, check_user, either, misconfigured, usable_leaves
from queuer.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeFault:
    """All that keeps a workload out of its queue. `draining`: the queue drains, whatever is wrong beside that."""

    explanation: Explanation
    draining: bool = False


def check(
    workload: Workload,
    tree: QueueTree,
    topology: Topology,
    nodes: Collection[Node],
    *,
    priorities: Mapping[str, int],
    groups: Collection[str] = (),
    waits: bool = False,
    problems: Sequence[FieldProblem] = (),
) -> IntakeFault | None:
    """All that is wrong with the workload, None if nothing is.

    `priorities`: see `highest_priority`. `groups`: of its user. `waits`: it waits in its queue already. `problems`: the
    fields that could not be read; no other fault repeats them.
    """

    def unread(*names: str) -> bool:
        return any(name in problem.field for problem in problems for name in names)

    faults = [malformed(_offering(problems, workload, tree, groups))] if problems else []
    queue = check_queue(workload, tree, groups) or check_user(workload, groups, tree)
    drained = None
    if queue is None:  # a wrong queue allows nothing yet
        drained = None if waits else _drained(workload, tree)
        asks_class = not unread(PRIORITY_CLASS, "priorityClassName")
        priority = _priority(workload, tree, priorities) if asks_class else None
        runtime = None if unread(MAX_RUNTIME) else _runtime(workload, tree)
        faults += filter(None, (priority, runtime))
    elif not unread(QUEUE):
        faults.append(queue)
    wrong = together(*faults, *_levels(workload, topology, nodes)) or drained
    return None if wrong is None else IntakeFault(explanation=wrong, draining=drained is not None)


def _offering(
    problems: Sequence[FieldProblem], workload: Workload, tree: QueueTree, groups: Collection[str]
) -> list[FieldProblem]:
    """The problems; in the place of a queue that is no path at all a queue that the job may use is legal."""
    usable = usable_leaves(workload, tree, groups)
    return [
        replace(problem, legal=usable[0]) if problem.field == f"label {QUEUE}" and usable else problem
        for problem in problems
    ]


def refused(workload: Workload, tree: QueueTree, priorities: Mapping[str, int]) -> bool:
    """Whether the workload's queue refuses it, whoever its user is."""
    return bool(
        check_queue(workload, tree) or _priority(workload, tree, priorities) or _runtime(workload, tree)
    )


def together(*found: Explanation) -> Explanation | None:
    """Several faults as one reason: all sentences, the first fault's parameters, and in `also` those of the others."""
    faults = [fault.primary for fault in found]
    if not faults:
        return None
    params = dict(faults[0].params)
    if len(faults) > 1:
        params["also"] = [dict(fault.params) for fault in faults[1:]]
    texts = (f if len(f) <= LONGEST else f"{f[:LONGEST]}…" for f in (fault.text for fault in faults))
    return misconfigured("; ".join(texts), **params)


def _drained(workload: Workload, tree: QueueTree) -> Explanation | None:
    """Why a new job waits outside a queue that drains; jobs that wait there keep their place."""
    drains = any(tree[queue].state is QueueState.DRAINING for queue in tree.lineage(workload.queue))
    return closed_queue(workload.queue, tree) if drains else None


def closed_queue(queue: str, tree: QueueTree) -> Explanation | None:
    """Why nothing new starts in this queue, None if it is open."""
    path = [(each, tree[each].state) for each in tree.lineage(queue)]
    closed = [{"queue": each, "state": str(state)} for each, state in path if state is not QueueState.OPEN]
    if not closed:
        return None
    return Explanation(primary=Reason(Token.SUSPENDED, {"queue": queue, "closed": closed}))


def over_max_pending(queue: str, namespace: str, most: int) -> Explanation:
    """The reason of a job behind as many jobs of its namespace as the queue considers at a time (`maxPending`)."""
    wait = f"{plural(most, 'job')} of namespace {namespace} {'waits' if most == 1 else 'wait'}"
    text = f"{wait} in {queue} before this one, as many as are considered at a time"
    said = f"{text} (maxPending {most}); it is considered when some of them have started or gone."
    return simple(Token.BEHIND_IN_QUEUE, said, queue=queue, namespace=namespace, maxPending=most)


def highest_priority(queue: str, tree: QueueTree, priorities: Mapping[str, int]) -> int | None:
    """The highest priority that a queue allows, None = any.

    `priorities`: the value of each PriorityClass, under `""` that of jobs that name none. A class that does not exist
    bounds like none at all, so that a job without a class may still queue.
    """
    highest = tree.access(queue).max_priority if queue in tree else None
    return None if highest is None else priorities.get(highest, priorities.get("", 0))


def _priority(workload: Workload, tree: QueueTree, priorities: Mapping[str, int]) -> Explanation | None:
    highest, most = (
        tree.access(workload.queue).max_priority,
        highest_priority(workload.queue, tree, priorities),
    )
    if highest is None or most is None or workload.priority <= most:
        return None
    missing = "" if highest in priorities else ", a PriorityClass that does not exist"
    values = {
        name: value for name, value in priorities.items() if name and not name.startswith(SYSTEM_CLASSES)
    }
    allowed = sorted(
        (name for name, value in values.items() if value <= most), key=lambda name: (-values[name], name)
    )
    return misconfigured(
        f"priority {workload.priority} is above {most}, the most that queue {workload.queue} allows "
        f"(maxPriority {highest}{missing}); set the label {PRIORITY_CLASS} to {either(allowed[:3]) or 'another class'}",
        queue=workload.queue, priority=workload.priority, highest=most, maxPriority=highest, nearest=allowed[:3],
    )  # fmt: skip


def _runtime(workload: Workload, tree: QueueTree) -> Explanation | None:
    """The fault of a job that may run for longer than its queue allows."""
    most, promised = tree.access(workload.queue).max_runtime, workload.max_runtime
    if most is None or (promised is not None and promised <= most):
        return None
    allowed = format_duration(most)
    said = (
        "this one promises no end"
        if promised is None
        else f"this one may run for {format_duration(promised)}"
    )
    return misconfigured(
        f"queue {workload.queue} takes jobs that run for {allowed} at most (maxRuntime), {said}; "
        f"set the annotation {MAX_RUNTIME} to {allowed} or less",
        queue=workload.queue, maxRuntime=allowed,
    )  # fmt: skip


def _levels(workload: Workload, topology: Topology, nodes: Collection[Node]) -> Iterator[Explanation]:
    for field, level, required in _asked_levels(workload):
        index = topology.find(level)
        if index is None:
            near = difflib.get_close_matches(level, topology.levels, n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield misconfigured(
                f"{field} asks for level {level!r}, but the levels are {', '.join(topology.levels)}{meant}",
                field=field, level=level, levels=list(topology.levels), nearest=near,
            )  # fmt: skip
            continue
        key = topology.keys[index]
        if required and key != HOSTNAME and not any(key in node.labels for node in nodes):
            yield misconfigured(
                f"{field} asks for level {level}, but no node carries its label {key}",
                field=field, level=level, label=key,
            )  # fmt: skip


def _asked_levels(workload: Workload) -> Iterator[tuple[str, str, bool]]:
    """Every level that a workload asks for: the field, the level's name, whether it is required."""
    asked = [("", workload.required, workload.preferred)]
    asked += [(f" of pod set {p.name}", p.required, p.preferred) for p in workload.pod_sets]
    for where, required, preferred in asked:
        if required is not None:
            yield f"topology-required{where}", required, True
        if preferred is not None:
            yield f"topology-preferred{where}", preferred, False

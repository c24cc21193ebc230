"""The queues that a job may name, and the reason why it may not name the one that it does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from queuer.domain.nodes import NO_LABELS
from queuer.domain.queue import Access, QueueTree, common_ancestor
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import Workload

NAMED = 5
"""How many of those who may use a queue are named."""


def misconfigured(text: str, **params: object) -> Explanation:
    """The explanation of a job that only its owner, or a change of the queues, can mend."""
    return simple(Token.MISCONFIGURED, text, **params)


def runs_beside(fault: Explanation) -> Explanation:
    """The reason of a job that runs although its queue never let it in, as after the loss of the database."""
    text = f"it runs, and no queue counts what it uses: {fault.primary.text}"
    return misconfigured(text, **{**fault.primary.params, "runs": True})


def routed(
    workload: Workload, groups: Collection[str], tree: QueueTree, labels: Mapping[str, str] = NO_LABELS
) -> Workload:
    """The workload in the queue to which the rules of the one that it names hand it. `groups`: of its user; `labels`:
    of its job.
    """
    steps = tree.routed(
        workload.queue, namespace=workload.namespace, user=workload.user, groups=groups, labels=labels
    )
    return replace(workload, queue=steps[-1][1].queue) if steps else workload


def check_queue(workload: Workload, tree: QueueTree) -> Explanation | None:
    """Why the workload's namespace cannot use the queue that it names, None if it can."""
    path = workload.queue
    if path not in tree:
        near = tree.nearest(path)
        usable = usable_leaves(workload, tree)
        other = (
            f"from here use {either(usable[:3])}" if usable else f"no queue serves {workload.namespace} yet"
        )
        meant = f"; did you mean {either(near)}?" if near else f"; {other}"
        return misconfigured(
            f"queue {path} does not exist{meant}", queue=path, nearest=list(near) or usable[:3]
        )
    if not tree.is_leaf(path):
        leaves = [leaf for leaf in tree.leaves if leaf.startswith(f"{path}.")]
        who = f"namespace {workload.namespace}" + (f" and user {workload.user}" if workload.user else "")
        ruled = f", and none of its placement rules is for {who}"
        return misconfigured(
            f"queue {path} has queues below it and takes no jobs itself{ruled if tree[path].placement else ''}; "
            f"choose {either(leaves[:3])}",
            queue=path, nearest=leaves[:3],
        )  # fmt: skip
    allowed = tree.namespaces(path)
    if workload.namespace not in allowed:
        usable = usable_leaves(workload, tree)
        served = f"it serves {', '.join(allowed)}" if allowed else "it serves no namespace yet"
        instead = f"; from here use {either(usable[:3])}" if usable else ""
        return misconfigured(
            f"namespace {workload.namespace} may not use queue {path}: {served}{instead}",
            queue=path, namespace=workload.namespace, nearest=usable[:3],
        )  # fmt: skip
    return None


def check_user(
    workload: Workload, groups: Collection[str], tree: QueueTree, *, naming: bool = True
) -> Explanation | None:
    """Why the workload's user, of these groups, may not use its queue, None if they may. The queue is a leaf that its
    namespace may use. `naming`: whether those who may use it are named.
    """
    path, user, access = workload.queue, workload.user, tree.access(workload.queue)
    if access.admits(user, groups):
        return None
    usable = [leaf for leaf in usable_leaves(workload, tree) if tree.access(leaf).admits(user, groups)]
    usable.sort(key=lambda leaf: (-common_ancestor(path, leaf).count("."), leaf))
    who = f"user {user}" if user else "a job without the annotation queuer.dev/user"
    instead = f"; {user} may use {either(usable[:3])} from here" if user and usable else ""
    return misconfigured(
        f"{who} may not use queue {path}: it is for {_named(access) if naming else 'others'}{instead}",
        queue=path, user=user, nearest=usable[:3] if user else [],
    )  # fmt: skip


def _named(access: Access) -> str:
    """The first users and groups that an access names."""
    parts = []
    for what, names in (("user", access.users), ("group", access.groups)):
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        if names:
            parts.append(f"{what}{'s' if len(names) > 1 else ''} {', '.join(names[:NAMED])}{more}")
    return " and ".join(parts)


def usable_leaves(workload: Workload, tree: QueueTree) -> list[str]:
    """The leaves that the workload's namespace may use."""
    return [leaf for leaf in tree.leaves if workload.namespace in tree.namespaces(leaf)]


def either(names: Collection[str]) -> str:
    return " or ".join(names)

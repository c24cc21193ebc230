"""The queues that a job may name, and the reason why it may not name the one that it does."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import replace

from queuer.domain.nodes import NO_LABELS
from queuer.domain.queue import Access, QueueState, QueueTree, common_ancestor
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


def check_queue(workload: Workload, tree: QueueTree, groups: Collection[str] = ()) -> Explanation | None:
    """Why the workload's namespace cannot use the queue that it names, None if it can. `groups`: of its user.
    A queue that is offered instead is open to both.
    """
    path, usable = workload.queue, usable_leaves(workload, tree, groups)
    instead = f"from here use {either(usable[:3])}" if usable else f"no queue serves {workload.namespace} yet"
    if path not in tree:
        near = difflib.get_close_matches(path, usable, n=3, cutoff=0.6)
        meant = f"did you mean {either(near)}?" if near else instead
        return misconfigured(f"queue {path} does not exist; {meant}", queue=path, nearest=near or usable[:3])
    if not tree.is_leaf(path):
        below = [leaf for leaf in usable if leaf.startswith(f"{path}.")][:3]
        who = f"namespace {workload.namespace}" + (f" and user {workload.user}" if workload.user else "")
        ruled = f", and none of its placement rules is for {who}" if tree[path].placement else ""
        return misconfigured(
            f"queue {path} has queues below it and takes no jobs itself{ruled}; "
            f"{f'choose {either(below)}' if below else instead}",
            queue=path, nearest=below or usable[:3],
        )  # fmt: skip
    allowed = tree.namespaces(path)
    if workload.namespace not in allowed:
        served = f"it serves {', '.join(allowed)}" if allowed else "it serves no namespace yet"
        return misconfigured(
            f"namespace {workload.namespace} may not use queue {path}: {served}{f'; {instead}' if usable else ''}",
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
    usable = usable_leaves(workload, tree, groups)
    usable.sort(key=lambda leaf: -common_ancestor(path, leaf).count("."))
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


def usable_leaves(workload: Workload, tree: QueueTree, groups: Collection[str] = ()) -> list[str]:
    """The leaves that take new jobs of the workload's namespace and user: those that are open before those held."""
    found = [
        (tree.effective_state(leaf) is not QueueState.OPEN, leaf)
        for leaf in tree.leaves
        if workload.namespace in tree.namespaces(leaf)
        and tree.access(leaf).admits(workload.user, groups)
        and tree.effective_state(leaf) is not QueueState.DRAINING
    ]
    return [leaf for _, leaf in sorted(found)]


def either(names: Collection[str]) -> str:
    return " or ".join(names)

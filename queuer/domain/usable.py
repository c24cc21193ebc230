"""Which queues a job may name, and what is wrong with the one that it does."""

from __future__ import annotations

from collections.abc import Collection

from queuer.domain.queue import QueueTree
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import Workload


def misconfigured(text: str, **params: object) -> Explanation:
    """The explanation of a job that only its owner, or a change of the queues, can mend."""
    return simple(Token.MISCONFIGURED, text, **params)


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
        return misconfigured(f"queue {path} does not exist{meant}", queue=path, nearest=list(near))
    if not tree.is_leaf(path):
        leaves = [leaf for leaf in tree.leaves if leaf.startswith(f"{path}.")]
        return misconfigured(
            f"queue {path} has queues below it and takes no jobs itself; choose {either(leaves[:3])}",
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


def usable_leaves(workload: Workload, tree: QueueTree) -> list[str]:
    """The leaves that the workload's namespace may use."""
    return [leaf for leaf in tree.leaves if workload.namespace in tree.namespaces(leaf)]


def either(names: Collection[str]) -> str:
    return " or ".join(names)

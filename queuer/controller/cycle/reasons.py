"""Selects the reasons that are written down after a decision.

Thousands of jobs wait, and each start moves a figure in most of their reasons. A reason that says something else is
written at once. If figures alone move in many, they are written now and then, a portion at a time.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from heapq import nsmallest

from queuer.controller.memory.state import ClusterState
from queuer.domain.reasons import Explanation, hide

FEW, PORTIONS = 200, 10
"""Of rows of which figures alone moved, so many are written after a decision, or one of so many portions."""
_WHOSE = (
    "queue", "resource", "flavor", "keeper", "level", "podSet", "owner", "name", "ownerQueue", "victims", "freed",
    "cause", "user", "perUser",
)  # fmt: skip
"""Parameters of a reason that say what or who it is about; the others are figures."""


def to_write(
    explanations: Mapping[str, Explanation],
    state: ClusterState,
    changed: Container[str],
    *,
    now: float,
    every: float,
) -> dict[str, Explanation]:
    """Reasons that differ from what is stored, of those that still wait. `changed`: uids whose state changes now.

    Where figures alone moved in more than `FEW`: a portion of those that were told `every` so many seconds ago, the
    longest ago first.
    """
    found, moved = dict[str, Explanation](), dict[str, Explanation]()
    for uid, explanation in explanations.items():
        live = state.live.get(uid)
        if live is None or uid in changed or not live.state.waiting or live.explanation == explanation:
            continue
        told = live.explanation
        same = told is not None and meaning(told) == meaning(explanation)
        (moved if same else found)[uid] = explanation
    if len(moved) > FEW:
        old = (uid for uid in moved if now >= state.live[uid].told + every)
        portion = max(FEW, len(moved) // PORTIONS)
        moved = {uid: moved[uid] for uid in nsmallest(portion, old, key=lambda uid: state.live[uid].told)}
    return {**found, **moved}


class Owners:
    """Explanations as owners may read them: stored texts, annotations and Events name no job of another namespace.

    Jobs of one namespace that share one go on sharing it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[Explanation, Explanation]] = {}

    def readable(self, explanation: Explanation, namespace: str) -> Explanation:
        """For the owner of a job in this namespace."""
        key = (id(explanation), namespace)
        if key not in self._known:  # kept with what it was made of, whose id then is no other's
            self._known[key] = explanation, hide(explanation, namespace.__eq__)
        return self._known[key][1]


def meaning(explanation: Explanation) -> object:
    """The statement of an explanation, without its figures."""
    reason = explanation.primary
    about = tuple(reason.params.get(name) for name in _WHOSE)
    return (reason.token, reason.verdict, about, "estimate" in explanation.detail)

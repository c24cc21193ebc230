"""Stand-in until the selection is there: nobody is preferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from queuer.core.shapes import Gang
from queuer.core.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Uids to offer first, and what it cost."""

    uids: frozenset[str]
    spent: float
    proven: bool


def select(state: State, gangs: Sequence[Gang], *, seed: int, budget: float) -> Selection:
    """Nobody."""
    return Selection(uids=frozenset(), spent=0.0, proven=True)

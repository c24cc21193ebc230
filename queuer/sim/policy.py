"""The orders under which a trace can be replayed. The command line imports this module to name them without
loading the solver.
"""

from __future__ import annotations

from enum import StrEnum


class ReplayPolicy(StrEnum):
    """`queuer`, `greedy`: the product's defaults, with and without CP-SAT.

    `fifo`, `sjf`: strict order by submit time or by length known beforehand; the head blocks.
    """

    QUEUER = "queuer"
    GREEDY = "greedy"
    FIFO = "fifo"
    SJF = "sjf"

    @property
    def strict(self) -> bool:
        """Whether a queue's head lets nobody pass."""
        return self in (ReplayPolicy.FIFO, ReplayPolicy.SJF)

"""Whether a workload can ever start, asked beside decisions: of jobs that none is asked about yet, or for long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from queuer.domain.errors import InvalidInput
from queuer.domain.nodes import Node
from queuer.domain.reasons import Explanation
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.explain.place import Places
from queuer.solver.explain.quota import Quotas
from queuer.solver.explain.reasons import Unstartable
from queuer.solver.records import NodeState, Pending, Snapshot
from queuer.solver.shapes import placement_terms
from queuer.solver.state import State

MOST = 10_000
"""Forms that are remembered."""


class Outlook:
    """Of these nodes and queues with nothing in use. Similar workloads are looked at once."""

    def __init__(self, nodes: Iterable[Node], rules: Rules) -> None:
        self._empty = Snapshot.under(rules, nodes=tuple(NodeState(node=node) for node in nodes))
        self._arrays: Arrays | None = None
        self._known: dict[object, Explanation | None] = {}

    def unstartable(self, workload: Workload) -> Explanation | None:
        """The reason why it can never start, or None if it might."""
        key = (workload.queue, workload.preemptible, placement_terms(workload))
        if key not in self._known:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = self._find(workload)
        return self._known[key]

    def _find(self, workload: Workload) -> Explanation | None:
        asked = replace(self._empty, pending=(Pending(workload=workload),))
        try:
            self._arrays = Arrays.of(asked) if self._arrays is None else self._arrays.follow(asked)
        except InvalidInput:  # what no decision can be made on
            return None
        gang = self._arrays.waiting.gangs.get(workload.uid)
        if gang is None:
            return None
        state = State(self._arrays, time=0.0)
        why = Unstartable(state, Quotas(state), Places(state)).why(gang)
        return None if why is None else Explanation(primary=why)

"""Gangs that can never start as they are, on no flavor that their queue allows.

A decision tells them so before anything that they wait for. `Outlook` tells it beside decisions, of jobs that no
decision is asked about yet, or for long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from queuer.domain.errors import InvalidInput
from queuer.domain.nodes import Node
from queuer.domain.quota import Charge
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.rules import Rules
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.explain.place import Places
from queuer.solver.explain.quota import Quotas
from queuer.solver.placement import Variant
from queuer.solver.records import NodeState, Pending, Snapshot
from queuer.solver.shapes import Gang, placement_terms
from queuer.solver.state import State

MOST = 10_000
"""Workloads with different `placement_terms` that are remembered."""


class Unstartable:
    """Answers for the gangs of one state, as if every node were idle and well and nothing used.

    An answer is found once for all gangs of a shape, and kept with the arrays if it tells no figures of a state.
    """

    def __init__(self, state: State, quotas: Quotas, places: Places) -> None:
        self._quotas, self._places = quotas, places
        self._kept, self._owed = state.arrays.unstartable, dict[int, Reason | None]()

    def why(self, gang: Gang) -> Reason | None:
        """The reason on the flavors that it likes best, or None if it might start one day or nodes may come."""
        known = self._kept if gang.workload.preemptible else self._owed
        if gang.shape.number not in known:
            known[gang.shape.number] = self._find(gang)
        return known[gang.shape.number]

    def on(self, gang: Gang, variant: Variant, charge: Charge) -> Reason | None:
        """The reason on these flavors."""
        return self._quotas.unstartable(gang, charge) or self._places.unstartable(gang, variant)

    def _find(self, gang: Gang) -> Reason | None:
        if not gang.shape.least:
            nowhere = self._places.nowhere(gang.workload)
            return nowhere if nowhere.token is Token.NO_MATCHING_FLAVOR else None
        first: Reason | None = None
        for variant, charge in gang.shape.least:
            found = self.on(gang, variant, charge)
            if found is None:
                return None
            first = first or found
        return first


class Outlook:
    """Of these nodes and queues with nothing in use, open or not. Similar workloads are looked at once."""

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
        waiting = self._arrays.waiting
        gang = waiting.gangs.get(workload.uid) or waiting.closed.get(workload.uid)
        if gang is None:
            return None
        state = State(self._arrays, time=0.0)
        why = Unstartable(state, Quotas(state), Places(state)).why(gang)
        return None if why is None else Explanation(primary=why)

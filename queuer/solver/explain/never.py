"""What can never start as it is, on no flavor that its queue allows: were every node idle and well, and nothing used.

It is told before anything that a gang only waits for, and once for all gangs of a shape.
"""

from __future__ import annotations

from queuer.domain.quota import Charge
from queuer.domain.reasons import Reason, Token
from queuer.solver.explain.place import Places
from queuer.solver.explain.quota import Quotas
from queuer.solver.placement import Variant
from queuer.solver.shapes import Gang


class Never:
    """Of one state."""

    def __init__(self, quotas: Quotas, places: Places) -> None:
        self._quotas, self._places = quotas, places
        self._known: dict[tuple[int, bool], Reason | None] = {}

    def why(self, gang: Gang) -> Reason | None:
        """Of the flavors that it likes best; None: on some it can start one day, or nodes of them may come."""
        key = (gang.shape.number, gang.workload.preemptible)
        if key not in self._known:
            self._known[key] = self._find(gang)
        return self._known[key]

    def on(self, gang: Gang, variant: Variant, charge: Charge) -> Reason | None:
        """On these flavors."""
        return self._quotas.never(gang, charge) or self._places.never(gang, variant)

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

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
from queuer.solver.state import State


class Never:
    """Of one state. What does not tell figures of it is kept with its arrays: it is the same in later cycles."""

    def __init__(self, state: State, quotas: Quotas, places: Places) -> None:
        self._quotas, self._places = quotas, places
        self._kept, self._owed = state.arrays.nevers, dict[int, Reason | None]()

    def why(self, gang: Gang) -> Reason | None:
        """Of the flavors that it likes best; None: on some it can start one day, or nodes of them may come."""
        known = self._kept if gang.workload.preemptible else self._owed
        if gang.shape.number not in known:
            known[gang.shape.number] = self._find(gang)
        return known[gang.shape.number]

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

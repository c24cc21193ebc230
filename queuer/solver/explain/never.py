"""Why a gang can never start: a limit, the live capacity, what others do not lend, or no node or domain that could hold
it when idle.
"""

from __future__ import annotations

from queuer.domain.reasons import Reason, Token
from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.explain.place import Fit, PlaceWords
from queuer.solver.explain.quota import QuotaWords
from queuer.solver.order import Gang


class Never:
    """What no end of running work would change."""

    def __init__(self, board: Board, quota: QuotaWords, place: PlaceWords) -> None:
        self._board = board
        self._quota = quota
        self._place = place

    def find(self, gang: Gang, queue: str) -> Reason | None:
        """By the limits on the path of this queue."""
        workload, shape = gang.pending.workload, gang.shape
        reason = self._no_level(workload)
        if reason is not None:
            return reason
        for least, charge in shape.smallest:
            reason = self._quota.over(gang, queue, charge) or self._quota.unlent(gang, queue, charge)
            if reason is None:
                fit = self._place.fits(workload, least, frozenset(), form=shape.form, idle=True)
                if fit in (Fit.YES, Fit.UNKNOWN):
                    return None
                reason = self._too_large(workload, least, fit)
        if shape.partial:
            return None
        return reason or self._place.nowhere(workload)

    def _no_level(self, workload: Workload) -> Reason | None:
        """A required level that the topology does not have."""
        topology = self._board.snapshot.topology
        for level in (workload.required, *(p.required for p in workload.pod_sets)):
            if level is not None and topology.find(level) is None:
                known = ", ".join(topology.levels)
                text = f"There is no topology level {level}; levels: {known}."
                return Reason(token=Token.MISCONFIGURED, text=text, params={"level": level})
        return None

    def _too_large(self, workload: Workload, variant: Variant, fit: Fit) -> Reason:
        """Larger than any domain could ever hold. New or relabelled nodes would help, so it waits."""
        closest = self._place.closest(workload, variant, frozenset(), idle=True)
        return self._place.nowhere(workload) if closest is None else self._place.lack(closest, fit)

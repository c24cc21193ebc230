"""Why a gang can never start: a limit, the live capacity, what others do not lend, or no node or domain that could hold
it when idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from queuer.domain.queue import ROOT
from queuer.domain.quota import Charge
from queuer.domain.reasons import Reason, Token
from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.explain.place import Fit, PlaceWords
from queuer.solver.explain.quota import QuotaWords
from queuer.solver.order import Gang

FLAVORS = 6
"""Of how many flavors, or choices of them, the cause is told."""


class Never:
    """What no end of running work would change."""

    def __init__(self, board: Board, quota: QuotaWords, place: PlaceWords) -> None:
        self._board = board
        self._quota = quota
        self._place = place
        self._in_no_queue: dict[int, bool] = {}

    def find(self, gang: Gang) -> Reason | None:
        """Why it could never start in its queue, in each flavor that it may use. None: it might, or may not borrow and
        for this alone could not; see `QuotaWords.never_entitled`.
        """
        workload, shape = gang.pending.workload, gang.shape
        if workload.preemptible and self._quota.only_root_bars(gang) and not self._root_forbids(gang):
            return None
        reason = self._no_level(workload)
        if reason is not None or shape.partial:
            return reason
        causes: dict[str, tuple[list[Variant], Reason]] = {}
        only_owed = True
        for least, charge in shape.smallest:
            cause = self._cause(gang, gang.queue, least, charge)
            only_owed &= cause is None
            cause = cause or self._quota.beyond_guarantee(gang, charge)
            if cause is None:
                return None
            causes.setdefault(cause.text, ([], cause))[0].append(least)
        if not causes:
            return self._place.nowhere(workload)
        return None if only_owed else _in_each([*causes.values()])

    def _root_forbids(self, gang: Gang) -> bool:
        """Whether it could start in no queue at all. Equal for gangs of one form and choice of flavors."""
        shape = gang.shape
        if shape.choice not in self._in_no_queue:
            causes = (self._cause(gang, ROOT, *one) for one in shape.smallest)
            self._in_no_queue[shape.choice] = self._no_level(gang.pending.workload) is not None or all(causes)
        return self._in_no_queue[shape.choice]

    def _cause(self, gang: Gang, queue: str, least: Variant, charge: Charge) -> Reason | None:
        """Why not in these flavors, by the limits on the path of this queue or for want of nodes."""
        reason = self._quota.over(gang, queue, charge) or self._quota.unlent(gang, queue, charge)
        return reason or self._too_large(gang, least)

    def _no_level(self, workload: Workload) -> Reason | None:
        """A required level that the topology does not have."""
        topology = self._board.snapshot.topology
        for level in (workload.required, *(p.required for p in workload.pod_sets)):
            if level is not None and topology.find(level) is None:
                known = ", ".join(topology.levels)
                text = f"There is no topology level {level}; levels: {known}."
                return Reason(token=Token.MISCONFIGURED, text=text, params={"level": level})
        return None

    def _too_large(self, gang: Gang, variant: Variant) -> Reason | None:
        """Larger than any domain could ever hold. New or relabelled nodes would help."""
        workload = gang.pending.workload
        fit = self._place.fits(workload, variant, frozenset(), form=gang.shape.form, idle=True)
        if fit in (Fit.YES, Fit.UNKNOWN):
            return None
        closest = self._place.closest(workload, variant, frozenset(), idle=True)
        return self._place.nowhere(workload) if closest is None else self._place.lack(closest, fit)


def _in_each(causes: Sequence[tuple[Sequence[Variant], Reason]]) -> Reason:
    """One reason of the causes in all flavors; its token is that of the first."""
    first = causes[0][1]
    if len(causes) == 1:
        return first
    told = [(" or ".join(map(_named, variants)), reason) for variants, reason in causes[:FLAVORS]]
    text = "It can start on none of the flavors that it may use. "
    text += " ".join(f"On {flavors}: {reason.text}" for flavors, reason in told)
    if len(causes) > FLAVORS:
        text += f" Nor does it fit in {len(causes) - FLAVORS} more ways."
    rows = [
        {**reason.params, "on": flavors, "token": reason.token.value, "text": reason.text}
        for flavors, reason in told
    ]
    return Reason(token=first.token, text=text, params={"idle": True, "causes": rows})


def _named(variant: Variant) -> str:
    """Its flavor, or those of its pod sets."""
    flavors = variant.flavors
    if len(set(flavors.values())) == 1:
        return next(iter(flavors.values()))
    return ", ".join(f"{flavor} ({name})" for name, flavor in flavors.items())

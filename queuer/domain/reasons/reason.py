"""Why a workload waits: a token and its figures, made once for all jobs that wait alike.

The sentence is made where the reason is read. `queuer.domain.reasons.table` has the words of each token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.reasons.amounts import counted, plural, said, shown
from queuer.domain.reasons.changes import JobChange
from queuer.domain.reasons.table import ROWS, Token, Verdict

NO_PARAMS: Mapping[str, Any] = MappingProxyType({})
LONGEST = 600
"""Characters of a sentence that quotes what somebody wrote, which may be a quarter of a megabyte of annotation."""
MOST_FAULTS, NAME = 12, 80
"""So many fields that cannot be read are named in a sentence, with so many characters of their names at least."""
_OWN_LINES = frozenset({"maxPending", "perUser"})
"""Parameters of a job that waits for others of its namespace or user, whatever room there is."""


class Exclusion(StrEnum):
    """Why a node has no room for a pod; the first that applies counts."""

    FLAVOR = "Flavor"  # belongs to another flavor
    SELECTOR = "Selector"  # node selector or affinity
    TAINT = "Taint"
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    AVOIDED = "Avoided"  # the gang did not land there before
    TOO_SMALL = "TooSmall"  # could not hold one pod even if it were idle
    FULL = "Full"
    RESERVED = "Reserved"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a token, figures for programs, and a sentence for people.

    `params`: JSON values, as the token's row in `ROWS` types them. Amounts are integers in base units of what
    `resource` names; they are quantities if the sentence was already `said`.
    """

    token: Token
    params: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMS)
    said: str = ""

    @classmethod
    def read(cls, token: Token, text: str, params: Mapping[str, Any]) -> Reason:
        """The reason whose `text` and `shown` these are."""
        try:
            made = cls(token, counted(params))
        except InvalidInput:
            return cls(token, params, text)
        return made if made.text == text else cls(token, params, text)

    @property
    def text(self) -> str:
        """The sentence; the token's meaning if the parameters are none that it is told with."""
        if self.said:
            return self.said
        try:
            return ROWS[self.token].sentence(said(self.params))
        except (AttributeError, KeyError, TypeError):
            return ROWS[self.token].meaning

    @property
    def shown(self) -> Mapping[str, Any]:
        """`params` with amounts as Kubernetes quantities, e.g.
        `{"queue": "root.research", "resource": "nvidia.com/gpu", "limit": "16", "used": "12", "asks": "8"}`.
        """
        return self.params if self.said else shown(self.params)

    @property
    def unstartable(self) -> bool:
        """Whether the job can never start as it is: its token says so, or not even an idle cluster could hold it. A job
        that runs beside the queues has started.
        """
        never = self.token.verdict is Verdict.CHANGE or self.params.get("unstartable") is True
        return never and not self.beside

    @property
    def beside(self) -> bool:
        """Whether the job runs all the same, and no queue counts it."""
        return self.params.get("runs") is True

    @property
    def out_of_turn(self) -> bool:
        """Whether the job has no turn as it is: it could not start, runs beside the queues, or is queued no more."""
        return self.unstartable or self.beside or "unmanagedSince" in self.params

    @property
    def verdict(self) -> Verdict:
        """The token's verdict; CHANGE if the job is unstartable, is behind one that is, or lacks a volume claim."""
        owners = self.params.get("headUnstartable") is True or "claim" in self.params
        return Verdict.CHANGE if self.unstartable or owners else self.token.verdict

    def starves(self, queue: str) -> bool:
        """Whether a job of this queue waits for room alone, so that a queue below its guarantee is starved by it.

        If a limit of its own queue is in its way no eviction would help.
        """
        return self.lacks_room and self.limited_by != queue

    @property
    def lacks_room(self) -> bool:
        """Whether the job waits for what others have, unless its own queue is `limited_by`."""
        waits = ROWS[self.token].lacks != "" and self.verdict is not Verdict.CHANGE
        return waits and _OWN_LINES.isdisjoint(self.params) and self.limited_by != ""

    @property
    def limited_by(self) -> str | None:
        """The queue whose written limit is in the way; None = no such limit, "" = a limit that no queue has."""
        if ROWS[self.token].lacks != "quota" or self.params.get("live") is True:
            return None
        return str(self.params.get("queue") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The one primary reason of a waiting workload and all others that hold.

    `would_admit`: changes that would let it start now; `detail`: further parts of the explanation object (`need`,
    `available`, `excluded`, `ahead`, `holders`, `reservation`, `estimate`), JSON values.
    """

    primary: Reason
    others: tuple[Reason, ...] = ()
    would_admit: tuple[JobChange, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMS)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the primary reason."""
        return self.primary.verdict

    @property
    def unstartable(self) -> bool:
        """Whether the job can never start as it is."""
        return self.primary.unstartable


def simple(token: Token, text: str, **params: Any) -> Explanation:
    """An explanation that is its primary reason alone."""
    return Explanation(primary=Reason(token, params, text))


def malformed(problems: Iterable[FieldProblem]) -> Explanation:
    """The explanation of a job that cannot be decided on as it is, by its fields and their legal `values`.

    Each fault is named: of long ones as much is told as there is room for.
    """
    told = tuple(problems)
    texts = [str(problem) for problem in told[:MOST_FAULTS]]
    room = LONGEST // max(1, len(texts))  # what short ones leave is for long ones
    spare = sum(max(0, room - len(text)) for text in texts)
    room += spare // max(1, sum(len(text) > room for text in texts))
    rooms = [max(room, min(len(problem.field), NAME)) for problem in told]
    parts = [f if len(f) <= most else f"{f[:most]}…" for f, most in zip(texts, rooms, strict=False)]
    if len(told) > MOST_FAULTS:
        parts.append(plural(len(told) - MOST_FAULTS, "more fault"))
    values = dict(problem.instead for problem in told if problem.instead is not None)
    values |= {problem.field: problem.legal for problem in told if problem.legal is not None}
    return simple(
        Token.MISCONFIGURED, "; ".join(parts), fields=[problem.field for problem in told], values=values
    )

"""Why a workload waits: a token, its figures, and the sentence that is made of them where it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.figures import counted, shown
from queuer.domain.sentences import sentence
from queuer.domain.tokens import Token, Verdict

__all__ = [
    "LONGEST",
    "NO_PARAMS",
    "Exclusion",
    "Explanation",
    "Reason",
    "Token",
    "Verdict",
    "malformed",
    "simple",
]

NO_PARAMS: Mapping[str, Any] = MappingProxyType({})
LONGEST = 600
"""Characters of a sentence that quotes what somebody wrote, which may be a quarter of a megabyte of annotation."""


class Exclusion(StrEnum):
    """Why a node has no room for a pod; the first that applies counts."""

    FLAVOR = "Flavor"  # belongs to another flavor
    SELECTOR = "Selector"  # node selector or affinity
    TAINT = "Taint"
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    AVOIDED = "Avoided"  # the gang did not land there before
    FULL = "Full"
    RESERVED = "Reserved"


@dataclass(frozen=True, slots=True, init=False)
class Reason:
    """One reason: figures for programs, and a sentence for people that is made of them where it is read.

    `params`: JSON values. Where no sentence is `said`, amounts in them are integers in base units of what `resource`
    names (`per`, `asked`: of each key); see `shown`.
    """

    token: Token
    params: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMS)
    said: str = ""

    def __init__(
        self, token: Token, params: Mapping[str, Any] = NO_PARAMS, said: str = "", *, text: str = ""
    ) -> None:
        """`text`: the same as `said`."""
        put = object.__setattr__
        put(self, "token", token)
        put(self, "params", params)
        put(self, "said", text or said)

    @classmethod
    def read(cls, token: Token, text: str, params: Mapping[str, Any]) -> Reason:
        """What `text` and `shown` of a reason were written from: read again it equals that reason."""
        try:
            made = cls(token, counted(params))
        except InvalidInput:
            return cls(token, params, text)
        return made if made.text == text else cls(token, params, text)

    @property
    def text(self) -> str:
        """The sentence."""
        return self.said or sentence(self.token, self.shown)

    @property
    def shown(self) -> Mapping[str, Any]:
        """`params` with amounts as Kubernetes quantities, e.g.
        `{"queue": "root.research", "resource": "nvidia.com/gpu", "limit": "16", "used": "12", "asks": "8"}`.
        """
        return self.params if self.said else shown(self.params)

    @property
    def verdict(self) -> Verdict:
        """The token's verdict; CHANGE where `params` say that not even an `idle` cluster could hold the job, or that it
        is behind one that can `never` start.
        """
        never = self.params.get("idle") is True or self.params.get("never") is True
        return Verdict.CHANGE if never else self.token.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The one primary reason of a waiting workload and all others that hold.

    `would_admit`: checked changes that would let it start now, JSON objects such as
    `{"change": "topology=block", "evictions": 0}`; `detail`: further parts of the explanation object
    (`need`, `available`, `excluded`, `ahead`, `holders`, `reservation`, `estimate`), JSON values.
    """

    primary: Reason
    others: tuple[Reason, ...] = ()
    would_admit: tuple[Mapping[str, Any], ...] = ()
    detail: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMS)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the primary reason."""
        return self.primary.verdict


def simple(token: Token, text: str, **params: Any) -> Explanation:
    """An explanation that is its primary reason alone."""
    return Explanation(primary=Reason(token=token, text=text, params=params))


def malformed(problems: Iterable[FieldProblem]) -> Explanation:
    """The explanation of a job that cannot be decided on as it is, whose `params` name the fields."""
    told = tuple(problems)
    text = "; ".join(map(str, told))
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return simple(Token.MISCONFIGURED, short, fields=[problem.field for problem in told])

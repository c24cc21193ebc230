"""This server's version and words. For everyone: a page must know how to log in before it has."""

from __future__ import annotations

from fastapi import APIRouter

from queuer import __version__
from queuer.api.deps import PREFIX, Settings
from queuer.api.http.problems import KINDS
from queuer.api.models import Model
from queuer.domain.reasons import Token, Verdict
from queuer.domain.workload import State

router = APIRouter(prefix=PREFIX, tags=["meta"])


class ReasonToken(Model):
    """Why a job waits, and what that asks of its owner."""

    token: Token
    verdict: Verdict


class ProblemKind(Model):
    """A way to fail."""

    code: str
    status: int
    title: str
    advice: str


class Meta(Model):
    """`authentication`: ways to log in; none = whoever reaches the server may do everything."""

    version: str
    authentication: list[str]
    states: list[State]
    reasons: list[ReasonToken]
    problems: list[ProblemKind]


@router.get("/meta")
async def get_meta(settings: Settings) -> Meta:
    """Version, ways to log in, and the words of states, reasons and problems. It needs no token."""
    return Meta(
        version=__version__,
        authentication=settings.ways_in,
        states=list(State),
        reasons=[ReasonToken(token=token, verdict=token.verdict) for token in Token],
        problems=[
            ProblemKind(code=code, status=kind.status, title=kind.title, advice=kind.advice)
            for code, kind in KINDS.items()
        ],
    )

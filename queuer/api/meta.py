"""This server by itself: its version and words, whether it lives, what it counts. It tells nothing of jobs or queues.

It needs no token: a page must know how to log in before it has one, kubelets and Prometheus have none.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from queuer import __version__
from queuer.api.controller import Leader
from queuer.api.deps import PREFIX, Engine, Metrics, Settings
from queuer.api.http.problems import KINDS
from queuer.api.models import Model
from queuer.domain.errors import Unavailable
from queuer.domain.reasons import Token, Verdict
from queuer.domain.workload import State
from queuer.store import migrate
from queuer.store.engine import begin

router = APIRouter(prefix=PREFIX, tags=["meta"])
health = APIRouter(tags=["health"])


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
        problems=[ProblemKind.from_record(kind, code=code) for code, kind in KINDS.items()],
    )


@health.get("/livez", response_class=PlainTextResponse)
async def livez() -> str:
    """The process answers."""
    return "ok"


@health.get("/readyz", response_class=PlainTextResponse)
async def readyz(engine: Engine) -> str:
    """The database answers, at the schema that this version needs; 503 otherwise."""
    async with begin(engine) as connection:
        await migrate.check_in(connection)
    return "ok"


@health.get("/healthz/controller", response_class=PlainTextResponse)
async def controller_health(leader: Leader) -> str:
    """Somebody leads, or idles; 503 with the last sign of life otherwise. `/readyz` is of this server alone."""
    if not leader.state.decides:
        raise Unavailable(leader.text)
    return leader.state


@health.get("/metrics", response_class=PlainTextResponse)
async def metrics(found: Metrics) -> Response:
    """Metrics of this server in the Prometheus text format."""
    return Response(generate_latest(found.registry), media_type=CONTENT_TYPE_LATEST)

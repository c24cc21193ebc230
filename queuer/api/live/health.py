"""`/livez`, `/readyz`, `/healthz/controller`, `/metrics`: for kubelets and Prometheus.

They tell nothing of jobs or queues.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import text

from queuer.api.controller import controller
from queuer.api.deps import Engine, Metrics, Settings
from queuer.domain.errors import Unavailable
from queuer.store.engine import begin

router = APIRouter(tags=["health"])


@router.get("/livez", response_class=PlainTextResponse)
async def livez() -> str:
    """The process answers."""
    return "ok"


@router.get("/readyz", response_class=PlainTextResponse)
async def readyz(engine: Engine) -> str:
    """The database answers with the tables that are needed; 503 otherwise."""
    async with begin(engine) as connection:
        await connection.execute(text("SELECT revision FROM configuration"))
    return "ok"


@router.get("/healthz/controller", response_class=PlainTextResponse)
async def controller_health(engine: Engine, settings: Settings) -> str:
    """Somebody leads, or idles; 503 with the last sign of life otherwise. `/readyz` is of this server alone."""
    async with begin(engine) as connection:
        found = await controller(connection, stale_after=settings.stale_after)
    if not found.state.decides:
        raise Unavailable(found.text)
    return found.state


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(found: Metrics) -> Response:
    """Metrics of this server in the Prometheus text format."""
    return Response(generate_latest(found.registry), media_type=CONTENT_TYPE_LATEST)

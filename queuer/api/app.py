"""Puts the API together: guard, problems, routers. All its parts are passed in; nothing is global."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Depends, FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from queuer import __version__
from queuer.api import me, meta
from queuer.api.budget import CallerBudget
from queuer.api.config import changesets, states, tree
from queuer.api.controller import ControllerWatch, say_who_decides
from queuer.api.cycles import routes as cycles
from queuer.api.cycles import simulations, topology
from queuer.api.deps import PREFIX, asking
from queuer.api.document import DocumentedApi
from queuer.api.http import problems
from queuer.api.http.guard import Guard
from queuer.api.http.metrics import ApiMetrics
from queuer.api.http.parameters import known_parameters, not_an_action
from queuer.api.identity import denied
from queuer.api.identity.rights import Identity
from queuer.api.latest_cycle import LatestCycle
from queuer.api.live import audit, events, overview, stream
from queuer.api.live.feed import Feed
from queuer.api.pages import dashboard, login
from queuer.api.queues import routes as queues
from queuer.api.queues import routing
from queuer.api.queues.pending import queue_ranks
from queuer.api.queues.tree_cache import TreeCache
from queuer.api.settings import LOOPBACK_NAMES, ApiSettings
from queuer.api.simulator import Simulator
from queuer.api.workloads import commands, lists
from queuer.api.workloads import routes as workloads

DESCRIPTION = """Queues, workloads and why they wait. Amounts are Kubernetes quantities, times RFC 3339.
Every failure is `application/problem+json` (RFC 9457) with a stable `code`."""

COMPRESSION = 5
"""Level of gzip: higher ones take twice the time for a few per cent."""


def create_app(engine: AsyncEngine, settings: ApiSettings, identity: Identity) -> FastAPI:
    """The ASGI app over a database. It does not dispose of `engine`. `identity` says who asks and may what."""
    metrics = ApiMetrics()
    hosts = {*LOOPBACK_NAMES, *settings.allowed_hosts, settings.host.strip("[]").lower()}
    hosts |= {urlsplit(settings.url).hostname or ""} - {""}
    app = DocumentedApi(
        title="Queuer",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # would load scripts from elsewhere
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
        dependencies=[Depends(not_an_action), Depends(known_parameters)],
        middleware=[
            Middleware(
                Guard,
                hosts=hosts,
                max_body=settings.max_body,
                caller=identity.caller,
                observe=metrics.observe,
            ),
            Middleware(GZipMiddleware, minimum_size=1024, compresslevel=COMPRESSION),
        ],
    )
    app.state.engine = engine
    app.state.settings = settings
    app.state.controller = ControllerWatch(settings.database_url, stale_after=settings.stale_after)
    app.state.metrics = metrics
    app.state.latest = LatestCycle(engine)
    app.state.simulator = Simulator(app.state.latest)
    app.state.command_budget = CallerBudget("commands", a_minute=commands.A_MINUTE, at_once=commands.AT_ONCE)
    app.state.ranks = queue_ranks(app.state.latest)
    app.state.tree = TreeCache(engine)
    app.state.feed = Feed(engine, metrics, app.state.tree)
    app.state.identity = identity
    problems.install(app)
    denied.install(app)
    dashboard.install(app)
    told = [Depends(asking), Depends(say_who_decides)]
    for module in (
        me,
        queues,
        routing,
        overview,
        events,
        audit,
        stream,
        tree,
        changesets,
        states,
        lists,
        workloads,
        simulations,
        topology,
        cycles,
        commands,
    ):
        app.include_router(module.router, responses=problems.RESPONSES, dependencies=told)
    app.include_router(meta.router, responses=problems.RESPONSES)
    app.include_router(meta.health)
    app.include_router(login.router)
    app.include_router(dashboard.router)
    return app

"""Settings, from the tables of the modules that read them."""

from __future__ import annotations

from collections.abc import Iterable

from queuer.api.settings import OIDC
from queuer.api.settings import VARIABLES as API_SERVER
from queuer.cli.client import API
from queuer.cli.token import TOKEN
from queuer.controller.logs import LOG_FORMAT, LOG_LEVEL
from queuer.controller.settings import VARIABLES as CONTROLLER
from queuer.controller.tracing import ENDPOINT
from queuer.domain.variables import DATABASE_URL, Variable
from queuer.local.binaries import CACHE_DIR, KUBERNETES
from queuer.local.postgres_programs import PG_BIN
from queuer.local.stack import LOCAL_DIR
from tools.reference.markdown import code, page, table

PARTS: dict[str, tuple[Variable, ...]] = {
    "Controller: `queuer serve controller`": (*CONTROLLER.values(), LOG_LEVEL, LOG_FORMAT, ENDPOINT),
    "API server: `queuer serve api`": (*API_SERVER.values(), LOG_LEVEL, LOG_FORMAT, ENDPOINT),
    "API server: a provider where browsers log in": tuple(OIDC.values()),
    "Command line": (API, TOKEN),
    "Schema: `queuer db`": (DATABASE_URL,),
    "Local cluster: `queuer local`": (LOCAL_DIR, CACHE_DIR, KUBERNETES, PG_BIN, DATABASE_URL),
}


def made() -> str:
    """The page."""
    said = (
        "Programs are set up by environment variables, read once at the start. What is wrong is named with the form "
        "that is needed, and the program does not start. An empty variable is one that is not set. A server warns of a "
        "variable that it does not know and that resembles one of these: `no such setting`."
    )
    parts = [text for title, rows in PARTS.items() for text in (f"## {title}", _table(rows))]
    return page("Settings", said, *parts)


def _table(rows: Iterable[Variable]) -> str:
    return table(
        ("variable", "default", "value", "meaning"),
        [(code(v.name), code(v.default), v.form, v.meaning) for v in rows],
    )

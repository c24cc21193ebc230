"""Checks of the database for `queuer doctor`: does it answer, and is its schema this version's?"""

from __future__ import annotations

from sqlalchemy import create_engine, text

from queuer.domain.errors import QueuerError
from queuer.domain.finding import Finding, ok, wrong
from queuer.store import migrate
from queuer.store.engine import normalise_url

_CHECK = "database"


def database(url: str) -> Finding:
    """What is to be said of the database."""
    try:
        migrate.check(url)
    except QueuerError as error:
        return wrong(_CHECK, error.message or str(error), error.hint or "queuer db check")
    return ok(_CHECK, f"it answers, at schema {migrate.head()}")


def server_time(url: str) -> float:
    """The database's clock, epoch seconds. Call it where `database` is well."""
    engine = create_engine(normalise_url(url), connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            return float(
                connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
            )
    finally:
        engine.dispose()

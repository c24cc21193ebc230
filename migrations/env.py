"""Runs migrations on the connection that `queuer.store.migrate` hands over, one transaction per migration.

An advisory lock of the session makes replicas that start together migrate once: the others wait, however long that
takes. Each change of an existing schema ends the term of office: the leader looks at the schema again before it
leads on.
"""

import time
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import text
from sqlalchemy.engine import Connection

from queuer.store import migrate
from queuer.store.tables import MIGRATION

_PAUSE = 1.0
"""Seconds between two looks whether another migration has ended."""
_END_TERM = text("""
    DO $$ BEGIN
        IF to_regclass('leader') IS NOT NULL THEN UPDATE leader SET term = gen_random_uuid(); END IF;
    END $$
""")


def end_term(ctx: MigrationContext, step: MigrationInfo, heads: Any, run_args: Any) -> None:
    """Part of the transaction of each migration but the first."""
    if step.source_revision_ids and ctx.connection is not None:
        ctx.connection.execute(_END_TERM)


def run(connection: Connection) -> None:
    """Apply the asked steps under the migration lock."""
    key = {"key": MIGRATION}
    # A statement that waits for the lock has a snapshot, for which an index that is built concurrently would wait.
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), key):
        connection.commit()
        time.sleep(_PAUSE)
    connection.execute(text(f"SET lock_timeout = '{migrate.LOCK_TIMEOUT}s'"))
    connection.commit()
    try:
        context.configure(
            connection=connection,
            transaction_per_migration=True,
            on_version_apply=end_term,
        )
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
        connection.commit()


run(context.config.attributes["connection"])

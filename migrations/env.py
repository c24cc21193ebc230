"""Runs migrations on the connection that `queuer.store.migrate` hands over, one transaction per migration.

An advisory lock of the session makes replicas that start together migrate once.
"""

from alembic import context
from sqlalchemy import text
from sqlalchemy.engine import Connection

from queuer.store.locks import MIGRATION
from queuer.store.tables import metadata


def run(connection: Connection) -> None:
    """Apply the asked steps under the migration lock."""
    key = {"key": MIGRATION}
    connection.execute(text("SELECT pg_advisory_lock(:key)"), key)
    connection.commit()
    try:
        context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
        connection.commit()


run(context.config.attributes["connection"])

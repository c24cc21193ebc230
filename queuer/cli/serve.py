"""`queuer serve controller|api`: the server processes. Settings come from the environment."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Run a server process: the controller or the API.", no_args_is_help=True)


@app.command()
def controller() -> None:
    """Watch the cluster, decide, start and evict jobs. Several may run: one leads, the others stand by."""
    import asyncio

    from queuer.controller.logs import configure
    from queuer.controller.main import run
    from queuer.controller.settings import Settings

    configure()
    asyncio.run(run(Settings.from_env()))


@app.command()
def api(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    allow_unauthenticated_network: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated-network",
            help="Listen where others can reach it: everyone who does reads all jobs and may change quota.",
        ),
    ] = False,
) -> None:
    """Serve REST and the page from PostgreSQL (QUEUER_DATABASE_URL, QUEUER_PORT, QUEUER_ALLOWED_HOSTS)."""
    import asyncio
    import os

    from queuer.api.server import log_as_json, serve
    from queuer.api.settings import ApiSettings
    from queuer.domain.errors import FieldProblem, InvalidInput

    database_url = os.environ.get("QUEUER_DATABASE_URL", "")
    if not database_url:
        raise InvalidInput(
            FieldProblem(
                field="QUEUER_DATABASE_URL", message="is not set", hint="postgresql://user@host/database"
            )
        )
    settings = ApiSettings.from_env(os.environ, host=host, open_network=allow_unauthenticated_network)
    log_as_json()
    asyncio.run(serve(settings, database_url=database_url))

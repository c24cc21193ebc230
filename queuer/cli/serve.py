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
    from queuer.controller.tracing import exporting

    configure()
    with exporting("controller"):
        asyncio.run(run(Settings.from_env()))


@app.command()
def api(
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; QUEUER_PORT is the port, by default 8787.")
    ] = "127.0.0.1",
    open_network: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated-network",
            help="With QUEUER_AUTH=none: listen where others can connect although nobody logs in: "
            "everyone who reaches the address may read all jobs and change quota.",
        ),
    ] = False,
) -> None:
    """Serve REST, metrics and the page, from the database that QUEUER_DATABASE_URL names."""
    import asyncio
    import os

    from queuer.api.server import serve
    from queuer.api.settings import ApiSettings
    from queuer.controller.logs import configure
    from queuer.controller.tracing import exporting

    settings = ApiSettings.from_env(os.environ, host=host, open_network=open_network)
    configure()
    with exporting("api"):
        asyncio.run(serve(settings))

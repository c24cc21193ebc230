"""`queuer serve controller|api`: the server processes. Settings come from the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from queuer.domain.variables import Variable

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
    _warn_of_misspelt()
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
    _warn_of_misspelt()
    with exporting("api"):
        asyncio.run(serve(settings))


def known() -> tuple[Variable, ...]:
    """The settings of both servers: an environment may be that of both."""
    from queuer.api import settings as api_server
    from queuer.controller import settings as controller_process
    from queuer.controller.logs import LOG_FORMAT, LOG_LEVEL

    own = *controller_process.VARIABLES.values(), *api_server.VARIABLES.values(), *api_server.OIDC.values()
    return *own, LOG_LEVEL, LOG_FORMAT


def _warn_of_misspelt() -> None:
    """Log each variable that no server reads and that resembles one which is read."""
    import os

    from queuer.controller.logs import logger
    from queuer.domain.variables import misspelt

    for name, nearest in misspelt(os.environ, known()).items():
        logger("main").warning("no such setting", variable=name, nearest=nearest)

"""`queuer serve controller|api`: the server processes. Settings come from the environment (docs/settings.md)."""

from __future__ import annotations

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

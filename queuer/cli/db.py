"""`queuer db`: the schema of the database. Runs beside PostgreSQL, not through REST."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="The database schema.", no_args_is_help=True, rich_markup_mode=None)

Url = Annotated[
    str,
    typer.Option(
        "--database-url",
        envvar="QUEUER_DATABASE_URL",
        help="e.g. postgresql://user:password@host:5432/queuer",
        show_envvar=True,
        show_default=False,
    ),
]


@app.command()
def upgrade(url: Url) -> None:
    """Bring the database to the schema of this version."""
    from queuer.store import migrate

    before = migrate.current(url)
    migrate.upgrade(url)
    after = migrate.current(url)
    typer.echo(f"schema {after}, as before" if before == after else f"schema {before or 'none'} -> {after}")


@app.command()
def current(url: Url) -> None:
    """Print the schema that the database is at."""
    from queuer.store import migrate

    typer.echo(migrate.current(url) or "none")


@app.command()
def check(url: Url) -> None:
    """Exit with an error unless the database is at the schema of this version."""
    from queuer.store import migrate

    migrate.check(url)
    typer.echo(f"schema {migrate.head()}")

"""The doctor's words for a database: well, of another schema, not there."""

from __future__ import annotations

import pytest

from queuer.cli.client import Client
from queuer.cli.doctor import Installation, database
from queuer.local.site import Finding, Health
from queuer.store import migrate


def examined(url: str) -> tuple[Installation, Finding]:
    site = Installation(client=Client("http://127.0.0.1:1"), database_url=url)
    (found,) = database(site)
    return site, found


def test_a_database_of_this_schema_is_well_and_tells_its_time(database_url: str) -> None:
    site, found = examined(database_url)
    assert (found.health, migrate.head() in found.text) == (Health.OK, True)
    assert abs(site.offsets["the database"]) < 60


def test_a_database_of_another_schema_names_the_verb_that_mends_it(database_url: str) -> None:
    migrate.downgrade(database_url, "-1")
    _, found = examined(database_url)
    assert (found.health, found.fix) == (Health.WRONG, "run `queuer db upgrade`")


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("postgresql://nobody@127.0.0.1:1/queuer", "check QUEUER_DATABASE_URL and the server"),
        ("mysql://nobody@127.0.0.1/queuer", "write postgresql://"),
    ],
)
def test_a_database_that_cannot_be_asked_is_wrong(url: str, fix: str) -> None:
    _, found = examined(url)
    assert (found.health, fix in f"{found.text} {found.fix}") == (Health.WRONG, True), found

"""What is said of a database: well, of another schema, not there."""

from __future__ import annotations

import time

import pytest

from queuer.domain.finding import Health
from queuer.store import doctor, migrate


def test_a_database_of_this_schema_is_well_and_tells_its_time(database_url: str) -> None:
    found = doctor.database(database_url)
    assert (found.health, migrate.head() in found.text) == (Health.OK, True)
    assert abs(doctor.server_time(database_url) - time.time()) < 60


def test_a_database_of_another_schema_names_the_verb_that_mends_it(database_url: str) -> None:
    migrate.downgrade(database_url, "-1")
    found = doctor.database(database_url)
    assert (found.health, found.fix) == (Health.WRONG, "run `queuer db upgrade`")


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("postgresql://nobody@127.0.0.1:1/queuer", "check QUEUER_DATABASE_URL and the server"),
        ("mysql://nobody@127.0.0.1/queuer", "write postgresql://"),
    ],
)
def test_a_database_that_cannot_be_asked_is_wrong(url: str, fix: str) -> None:
    found = doctor.database(url)
    assert (found.health, fix in f"{found.text} {found.fix}") == (Health.WRONG, True), found

"""Settings of the API server: what is read, and a wrong one is named."""

from __future__ import annotations

from typing import Any

import pytest

from queuer.api.settings import ApiSettings, Authentication
from queuer.domain.errors import InvalidInput

URL = {"QUEUER_DATABASE_URL": "postgresql://x"}


def test_settings_say_who_is_asked_and_whether_others_may_connect() -> None:
    said = {"KUBECONFIG": "/k", "QUEUER_TOKEN_AUDIENCES": "queuer, other", "QUEUER_FILE_WRITERS": "ci"}
    found = ApiSettings.from_env(URL | said, host="0.0.0.0")
    assert (found.authentication, str(found.kubeconfig)) == (Authentication.KUBERNETES, "/k")
    assert (found.audiences, found.file_writers) == (("queuer", "other"), frozenset({"ci"}))
    assert found.stale_after == 30
    assert ApiSettings.from_env(URL | {"QUEUER_CONTROLLER_STALE": "90"}).stale_after == 90


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("Queuer.Example, queuer-api.q.svc", ("queuer.example", "queuer-api.q.svc")),
        ("10.0.0.1,fd00::1,[FD00::2]", ("10.0.0.1", "fd00::1", "fd00::2")),
        ("*", ("*",)),
    ],
)
def test_allowed_hosts_are_as_the_guard_compares_them(text: str, taken: tuple[str, ...]) -> None:
    assert ApiSettings.from_env(URL | {"QUEUER_ALLOWED_HOSTS": text}).allowed_hosts == taken


@pytest.mark.parametrize(
    ("environ", "options", "field"),
    [
        ({}, {}, "QUEUER_DATABASE_URL"),
        (URL | {"QUEUER_AUTH": "password"}, {}, "QUEUER_AUTH"),
        (URL | {"QUEUER_AUTH": "none"}, {"host": "0.0.0.0"}, "host"),
        (URL, {"open_network": True}, "--allow-unauthenticated-network"),
        (URL | {"QUEUER_CONTROLLER_STALE": "1"}, {}, "QUEUER_CONTROLLER_STALE"),
        *(
            (URL | {"QUEUER_ALLOWED_HOSTS": f"queuer.example, {name}"}, {}, "QUEUER_ALLOWED_HOSTS")
            for name in (
                "a.example:8787",
                "https://a.example",
                "*.a.example",
                "a.example/q",
                "[a]",
                "10.0.0.1:80",
            )
        ),
        *((URL | {"QUEUER_PORT": port}, {}, "QUEUER_PORT") for port in ("-1", "65536", "http", "٣")),
    ],
)
def test_a_wrong_setting_is_named(environ: dict[str, str], options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        ApiSettings.from_env(environ, **options)
    assert raised.value.problems[0].field == field

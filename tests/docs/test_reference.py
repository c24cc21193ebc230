"""The pages of docs/reference say what the code says, and the code has no word that they lack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuer.api.http.problems import KINDS
from queuer.cli.serve import known
from queuer.controller.settings import Settings
from queuer.domain.keys import KEYS
from queuer.domain.reasons import ROWS, Token
from queuer.domain.variables import Variable, misspelt
from tools.reference.metrics import Family, api, controller
from tools.reference.pages import FOLDER, PAGES
from tools.reference.settings import PARTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_makes_of_it(name: str) -> None:
    path = FOLDER / name
    assert path.exists(), "run `make docs`"
    assert path.read_text() == PAGES[name](), f"docs/reference/{name} is behind the code: run `make docs`"


def test_there_is_no_other_page() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def _sources(*folders: str) -> Iterator[str]:
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".yaml", ".html"):
                yield path.read_text()


def test_every_variable_that_the_code_names_is_a_setting() -> None:
    known = {variable.name for rows in PARTS.values() for variable in rows}
    named = {name for text in _sources("queuer") for name in re.findall(r"\bQUEUER_[A-Z_]+[A-Z]\b", text)}
    assert named - {"QUEUER_PARTS", "QUEUER_OIDC"} == {name for name in known if name.startswith("QUEUER_")}


def test_a_server_is_warned_of_misspelt_variables_and_of_no_other_program_s() -> None:
    everyone = {variable.name: "" for rows in PARTS.values() for variable in rows}
    links = dict.fromkeys(("QUEUER_API_PORT", "QUEUER_API_SERVICE_HOST", "QUEUER_API_PORT_8787_TCP_ADDR"), "")
    wrong = {"QUEUER_LANDING_DEADLIN": "QUEUER_LANDING_DEADLINE", "QUEUER_LOGLEVEL": "QUEUER_LOG_LEVEL"}
    assert misspelt({**everyone, **links, **wrong}, known()) == wrong


def test_every_key_that_code_and_policies_name_is_in_the_table() -> None:
    known = {key.name for key in KEYS}
    named = {
        key
        for text in _sources("queuer", "deploy")
        for key in re.findall(r"queuer\.dev/([a-z][a-z-]+\.?)", text)
    }
    beside = {"story"}  # the demo's own
    found = {f"queuer.dev/{key}" for key in named - beside if not re.fullmatch(r"v\d+", key)}
    assert {key.rstrip(".-") for key in found} == {key.rstrip(".") for key in known}


def test_a_controller_without_a_word_is_set_up_as_its_record_says() -> None:
    url = "postgresql://u@h/d"
    found = Settings.from_env({"QUEUER_DATABASE_URL": url})
    assert found == Settings(database_url=url, identity=found.identity)


def test_each_reason_and_each_problem_has_an_anchor_and_advice() -> None:
    assert set(ROWS) == set(Token)
    reasons, rest = (PAGES[name]() for name in ("reasons.md", "rest.md"))
    for token in Token:
        assert f"\n## {token}\n" in reasons
        assert ROWS[token].advice.endswith(".")
    for code in KINDS:
        assert f"\n### {code}\n" in rest


def test_settings_end_as_sentences() -> None:
    rows: list[Variable] = [variable for part in PARTS.values() for variable in part]
    assert [v.name for v in rows if not v.meaning.endswith(".")] == []


UNITS = ["seconds", "bytes", "ratio", "timestamp"]
OTHER_UNITS = [
    "milliseconds",
    "ms",
    "microseconds",
    "minutes",
    "hours",
    "days",
    "kilobytes",
    "kb",
    "mb",
    "gib",
    "percent",
    "celsius",
    "grams",
]
FAMILIES = [*controller(), *api()]


@pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
def test_a_metric_is_named_as_prometheus_would_have_it(family: Family) -> None:
    """The rules of `promtool check metrics`: a help, base units, no type in the name, `_total` on counters alone."""
    words = family.name.split("_")
    assert re.fullmatch(r"queuer(_[a-z0-9]+)+", family.name)
    assert family.help.endswith(".")
    assert not set(words) & set(OTHER_UNITS)
    assert not set(words) & {"counter", "gauge", "histogram", "summary"}
    assert (words[-1] == "total") == (family.type == "counter")
    assert not set(words[-1:]) & {"count", "sum", "bucket"}
    if family.type == "histogram":
        assert words[-1] in UNITS
    assert not set(family.labels) & {"job", "uid", "user", "node", "le", "quantile"}
    assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in family.labels)

"""Log lines are JSON, and tell no secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from queuer.controller.tracing import ENDPOINT, TRACER, exporting

PROGRAM = """
from queuer.controller.logs import configure, logger

def connect(password):
    raise OSError("no answer")

configure()
try:
    connect("s3cret")
except OSError:
    logger("main").exception("failed", workload="u")
"""


def ran(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with its output."""
    everything = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=everything
    )


def test_a_fault_is_logged_without_the_values_of_variables() -> None:
    """One of them is the password of the database."""
    program = PROGRAM.replace('"s3cret"', '"s3" + "cret"')
    said = ran(program).stderr
    assert '"workload": "u"' in said
    assert "no answer" in said
    assert "s3cret" not in said


def test_lines_are_json_those_of_libraries_too_unless_text_is_asked_for() -> None:
    program = f"{PROGRAM}\nimport logging\nlogging.getLogger('some.library').warning('odd %s', 1)\n"
    lines = [json.loads(line) for line in ran(program).stderr.splitlines()]
    assert [(line["part"], line["event"], line["level"]) for line in lines] == [
        ("main", "failed", "error"),
        ("some.library", "odd 1", "warning"),
    ]
    text = ran(program, QUEUER_LOG_FORMAT="text").stderr
    assert "OSError: no answer" in text
    assert "odd 1" in text
    assert "{" not in text


def test_a_level_and_a_form_that_there_are_not_are_refused_at_once() -> None:
    program = """
from queuer.controller.logs import configure
from queuer.domain.errors import InvalidInput
try:
    configure()
except InvalidInput as error:
    for problem in error.problems:
        print(problem.field, problem.hint)
"""
    told = ran(program, QUEUER_LOG_FORMAT="xml", QUEUER_LOG_LEVEL="trace").stdout
    level = "QUEUER_LOG_LEVEL debug, info, warning or error"
    assert told.splitlines() == [level, "QUEUER_LOG_FORMAT json or text"]


def test_without_an_endpoint_nothing_of_the_sdk_is_imported() -> None:
    program = """
import sys
from queuer.controller.tracing import TRACER, exporting
with exporting("controller", {}):
    with TRACER.start_as_current_span("queuer.cycle") as span:
        assert not span.is_recording()
heavy = ("opentelemetry.sdk", "opentelemetry.exporter", "requests")
print(sorted(name for name in sys.modules if name.startswith(heavy)))
"""
    assert ran(program).stdout == "[]\n"


def test_an_endpoint_without_the_sdk_costs_the_traces_and_not_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator of a cluster may set the variable in every pod."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    endpoint = {ENDPOINT.name: "http://collector:4318"}
    with capture_logs() as lines, exporting("api", endpoint), TRACER.start_as_current_span("cycle") as span:
        assert not span.is_recording()
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "pip install 'queuer[otel]'" in lines[0]["hint"]

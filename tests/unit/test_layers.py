"""Imports that must work alone: the core without third parties, the command line without the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOMAIN = sorted(f"queuer.domain.{path.stem}" for path in (ROOT / "queuer" / "domain").glob("[a-z]*.py"))


def _python(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    return subprocess.run(
        [sys.executable, *flags, "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("module", [*DOMAIN, "queuer.solver.records", "queuer.solver.verify"])
def test_the_core_needs_the_standard_library_alone(module: str) -> None:
    # -S leaves site-packages out: any third-party import fails.
    result = _python(f"import {module}", "-I", "-S")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["version"], ["--help"], ["local", "--help"], ["why", "--help"], ["events", "--help"]],
)
def test_the_command_line_starts_without_server_packages(arguments: list[str]) -> None:
    heavy = [
        "ortools",
        "kubernetes",
        "sqlalchemy",
        "psycopg",
        "fastapi",
        "kopf",
        "queuer.solver",
        "queuer.store",
    ]
    code = (
        f"sys.argv[1:] = {arguments!r}\n"
        "from queuer.cli.main import run\n"
        "try:\n run()\nexcept SystemExit as end:\n assert not end.code\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\n"
        "assert not loaded, loaded"
    )
    result = _python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("asked", "unneeded"),
    [
        ({"COMP_WORDS": "queuer w", "COMP_CWORD": "1"}, ["httpx2", "queuer.cli.why", "queuer.sim", "rich"]),
        (
            {"COMP_WORDS": "queuer why --", "COMP_CWORD": "2"},
            ["httpx2", "queuer.sim", "queuer.cli.config", "rich"],
        ),
    ],
)
def test_completion_loads_the_verb_that_is_typed_and_no_http(
    asked: dict[str, str], unneeded: list[str]
) -> None:
    """A shell asks at every press of a key."""
    code = (
        f"import os; os.environ |= {asked | {'_QUEUER_COMPLETE': 'complete_bash'}!r}\n"
        "from queuer.cli.main import run\n"
        "try:\n run()\nexcept SystemExit as end:\n assert not end.code\n"
        f"loaded = [name for name in {unneeded!r} if name in sys.modules]\n"
        "assert not loaded, loaded"
    )
    result = _python(code)
    assert result.returncode == 0, result.stderr

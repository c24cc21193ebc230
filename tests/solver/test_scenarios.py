"""Every story under tests/scenarios comes out as it says, with the real decision core in virtual time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from queuer.sim.judge import run
from queuer.sim.scenario import load

STORIES = Path(__file__).parent.parent / "scenarios"
FILES = sorted(STORIES.glob("*/*.yaml"))
SCHEMA = Draft202012Validator(json.loads((STORIES / "schema.json").read_text()))
NOT_PROMISED: Mapping[str, str] = {}
"""Stories that ask for what docs/decision.md does not promise, by name of the file, with the argument."""


@pytest.fixture(params=FILES, ids=lambda f: f.stem)
def file(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    if path.stem in NOT_PROMISED:
        request.applymarker(pytest.mark.xfail(reason=NOT_PROMISED[path.stem]))
    return path


def test_there_are_stories() -> None:
    """A wrong path must not pass as an empty run, and three exceptions are the most."""
    assert len(FILES) >= 60
    assert len(NOT_PROMISED) <= 3
    assert NOT_PROMISED.keys() <= {f.stem for f in FILES}


def test_scenario(file: Path) -> None:
    """CP-SAT included."""
    assert [f"{v.expectation}: {v.missed}" for v in run(load(file)) if v.missed] == []


@pytest.mark.parametrize("path", FILES, ids=lambda f: f.stem)
def test_grammar(path: Path) -> None:
    """The files keep to their published grammar and their own name."""
    document = yaml.safe_load(path.read_text())
    SCHEMA.validate(document)
    assert document["name"] == path.stem

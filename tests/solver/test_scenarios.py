"""Every story under tests/scenarios comes out as it says, with the real decision core in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from queuer.sim.judge import run
from queuer.sim.scenario import load
from queuer.solver.problem import Budget

STORIES = Path(__file__).parent.parent / "scenarios"
FILES = sorted(STORIES.glob("*/*.yaml"))
SCHEMA = Draft202012Validator(json.loads((STORIES / "schema.json").read_text()))


def test_there_are_stories() -> None:
    """A wrong path must not pass as an empty run."""
    assert len(FILES) >= 60


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_scenario(file: Path) -> None:
    """The exact solver included."""
    assert [f"{v.expectation}: {v.missed}" for v in run(load(file)) if v.missed] == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_scenario_greedy_only(file: Path) -> None:
    """Without the exact solver the stories come out the same: greedy alone must carry a controller."""
    verdicts = run(load(file), budget=Budget(deterministic=0.0))
    assert [f"{v.expectation}: {v.missed}" for v in verdicts if v.missed] == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_grammar(file: Path) -> None:
    """The files keep to their published grammar and their own name."""
    document = yaml.safe_load(file.read_text())
    SCHEMA.validate(document)
    assert document["name"] == file.stem

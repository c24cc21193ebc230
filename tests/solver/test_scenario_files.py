"""A scenario file that is wrong is a miss that names the field, never a traceback and never a silent pass."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from queuer.cli.sim import app
from queuer.domain.errors import InvalidInput
from queuer.sim.scenario import parse

GOOD: dict[str, Any] = {
    "name": "good",
    "nodes": [{"names": "n1..n2", "allocatable": {"cpu": 4, "pods": 10}}],
    "queues": [{"path": "root"}, {"path": "root.a"}],
    "workloads": [
        {
            "name": "w",
            "queue": "root.a",
            "submit": 0,
            "podSets": [{"name": "m", "count": 1, "requests": {"cpu": 1}}],
        }
    ],
    "expect": [{"at": 0, "admitted": ["w"]}],
}


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("nodes", 5, "nodes"),
        ("nodes", [{"names": "n1", "allocatable": {"cpu": "lots"}}], "nodes[0].allocatable.cpu"),
        ("nodes", [{"names": "n1", "allocatable": {}, "taints": [{"key": "a", "effect": "Bad"}]}], "effect"),
        ("workloads", [{"name": "w"}], "workloads[0]"),
        ("workloads", GOOD["workloads"] * 2, "'w' is there twice"),
        ("events", [{"at": 1, "fail": ["n7"]}], "events[0].fail"),
        ("foreign", [{"node": "n7", "requests": {"cpu": 1}}], "foreign[0].node"),
        ("expect", [], "expect"),
        ("expect", [{"at": "x", "admitted": ["w"]}], "expect[0].at"),
        ("expect", [{"admitted": ["w"]}], "one of at, always and started"),
        ("expect", [{"at": 0, "waiting": {"z": []}}], "'z' names no workload"),
        ("expect", [{"started": {"z": {"by": 4}}}], "'z' names no workload"),
        ("expect", [{"at": 0, "admited": ["w"]}], "admited"),
    ],
)
def test_what_is_wrong_is_named(field: str, value: Any, named: str) -> None:
    parse(GOOD)
    with pytest.raises(InvalidInput) as raised:
        parse({**deepcopy(GOOD), field: value})
    assert named in str(raised.value)


def test_lines_and_exit_codes(tmp_path: Path) -> None:
    """One line per expectation; a miss and a file that cannot be read end with 1, and the others run all the same."""
    good, missed, garbage = tmp_path / "good.yaml", tmp_path / "missed.yaml", tmp_path / "garbage.yaml"
    good.write_text(yaml.safe_dump(GOOD))
    missed.write_text(yaml.safe_dump({**GOOD, "expect": [{"at": 0, "waiting": {"w": []}}]}))
    garbage.write_bytes(b"\xff\xfe\x00")
    runner = CliRunner()
    passed = runner.invoke(app, ["scenario", str(good)])
    assert (passed.exit_code, passed.stdout.splitlines()) == (0, ["ok   good: at 0: admitted ['w']"])
    failed = runner.invoke(app, ["scenario", str(missed), str(garbage), str(good)])
    assert failed.exit_code == 1
    assert [line.split()[0] for line in failed.stdout.splitlines()] == ["MISS", "MISS", "ok"]
    told = runner.invoke(app, ["scenario", "--json", str(missed), str(good)])
    assert told.exit_code == 1
    assert [entry["passed"] for entry in json.loads(told.stdout)] == [False, True]

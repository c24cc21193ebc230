"""A scenario file that is wrong is a miss that names the field, never a traceback and never a silent pass."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from queuer.cli.sim import app
from queuer.domain.errors import InvalidInput
from queuer.sim.files import MOST_YAML
from queuer.sim.scenario import load, parse

DIRECTORY = Path(__file__).parent.parent / "scenarios"
STORIES = sorted(DIRECTORY.glob("*/*.yaml"))
SCHEMA = Draft202012Validator(json.loads((DIRECTORY / "schema.json").read_text()))


def bomb(depth: int) -> str:
    """Lists of aliases to lists of aliases."""
    return "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 8)}]\n" for n in range(depth)
    )


POD_SET = {"name": "m", "count": 1, "requests": {"cpu": 1}}
JOB: dict[str, Any] = {"name": "w", "queue": "root.a", "submit": 0, "podSets": [POD_SET]}
GOOD: dict[str, Any] = {
    "name": "good",
    "nodes": [{"names": "n1..n2", "allocatable": {"cpu": 4, "pods": 10}}],
    "queues": [{"path": "root"}, {"path": "root.a"}],
    "workloads": [JOB],
    "expect": [{"at": 0, "admitted": ["w"]}],
}


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("nodes", 5, "nodes"),
        ("nodes", [{"names": "n1", "allocatable": {"cpu": "lots"}}], "nodes[0].allocatable.cpu"),
        ("nodes", [{"names": "n1", "allocatable": {"gpu": "1.5"}}], "write 1 or 2"),
        ("nodes", [{"names": "n1", "allocatable": {"gpu": 1.5}}], "nodes[0].allocatable"),
        ("nodes", [{"names": "n1", "allocatable": {"gpu": True}}], "nodes[0].allocatable"),
        ("nodes", [{"names": "n1", "allocatable": {"gpu": 10**30}}], "nodes[0].allocatable"),
        ("nodes", [{"names": "n1", "allocatable": {"gpu": float("nan")}}], "nodes[0].allocatable"),
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
        ("expect", [{"at": 0, "waiting": {"w": ["WaitingForGodot"]}}], "expect[0].waiting"),
        ("expect", [{"at": 0}], "with at, and only with it"),
        ("expect", [{"at": 0, "used": {"root.z": {"cpu": 1}}}], "'root.z' is no queue"),
        (
            "workloads",
            [{**JOB, "queue": "root.zzz"}],
            "workloads[0].queue: 'root.zzz' is no queue",
        ),
        (
            "queues",
            [{"path": "root.a", "quota": [{"resource": "nvidia.com/gpu", "guaranteed": 1.5}]}],
            "queues.root.a.quota[0].guaranteed: 1.5 is no whole number, and nvidia.com/gpu is counted in pieces",
        ),
        ("event", [], "event"),
        ("events", [{"at": 1}], "one thing happens"),
        ("events", [{"at": 1, "reboot": ["n1"]}], "reboot"),
        ("events", [{"at": 1, "hold": ["w"], "fail": ["n1"]}], "one thing happens"),
        ("events", [{"at": 1, "delete": ["z"]}], "events[0].delete: 'z' names no workload"),
        ("events", [{"at": 2, "cordon": ["n1"]}, {"at": 1, "fail": ["n1"]}], "'n1' has failed before"),
        ("events", [{"at": 1, "queue": {"path": "root.a", "weight": -1}}], "queues.root.a.weight"),
        ("queues", [{"path": "root.a"}, {"path": "root.a"}], "'root.a' is there twice"),
        ("queues", [{"path": "root.a", "quta": []}], "queues.root.a.quta"),
        ("nodes", [*GOOD["nodes"], {"names": "n2", "allocatable": {}}], "'n2' is there twice"),
        ("nodes", [{"names": "n1..n1000000000", "allocatable": {}}], "1000000000 are more than 100000"),
        ("nodes", [{"names": f"n1..n{'9' * 50}", "allocatable": {}}], "are more than 100000"),
        (
            "nodes",
            [{"names": "n1..n3", "allocatable": {"cpu": 2**51, "x": 2**62}}],
            "in all is more than 2^62",
        ),
        ("workloads", [{**JOB, "copies": 10**9}], "workloads[0].copies"),
        ("workloads", [{**JOB, "podSets": JOB["podSets"] * 2}], "two pod sets are named 'm'"),
        ("workloads", [{**JOB, "podSets": [{**POD_SET, "count": 10**30}]}], "workloads[0].podSets[0].count"),
        ("workloads", [{**JOB, "podSets": [{**POD_SET, "minCount": 2}]}], "minCount 2 is above count 1"),
        ("workloads", [{**JOB, "running": {"since": 0, "nodes": {"n9": 1}}}], "running: 'n9' is no node"),
        (
            "workloads",
            [{**JOB, "running": {"since": 0, "nodes": {"n1": 3}}}],
            "3 pods run, the pod sets have 1",
        ),
        ("workloads", [{**JOB, "running": {"since": 0, "spread": "n1..n9"}, "copies": 9}], "'n9' is no node"),
        ("until", 10**30, "until"),
    ],
)
def test_what_is_wrong_is_named(field: str, value: Any, named: str) -> None:
    parse(GOOD)
    with pytest.raises(InvalidInput) as raised:
        parse({**deepcopy(GOOD), field: value})
    assert named in str(raised.value)


def test_of_many_names_the_nearest_are_named() -> None:
    """One line that can be read, however many workloads there are."""
    many = {**GOOD, "workloads": [{**JOB, "copies": 5000}]}
    with pytest.raises(InvalidInput) as raised:
        parse({**many, "expect": [{"at": 0, "admitted": ["x"]}]})
    assert "'x' names no workload (nearest of 5000: w-1, w-10, w-100)" in str(raised.value)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, those inside queue bodies aside (they are read as in a QueueTree document)."""
    yield at
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if key != "queue" and at[:1] != ("queues",):
            yield from paths(value[key], (*at, key))


@settings(max_examples=300)
@given(st.data())
def test_what_the_grammar_refuses_is_refused(data: st.DataObject) -> None:
    """One value of a real story is replaced, or a field is added: never a traceback, never a silent pass."""
    document = yaml.safe_load(data.draw(st.sampled_from(STORIES)).read_text())
    place = document
    *way, last = data.draw(st.sampled_from([p for p in paths(document) if p]))
    for key in way:
        place = place[key]
    values = [0, -1, 2**70, 1.5, "", "x", "n1..n3", "Uppercase", True, [], {}, ["x", "x"], {"x": 1}]
    if isinstance(place, dict) and data.draw(st.booleans()):
        last = "surplus"
    place[last] = data.draw(st.sampled_from(values))
    try:
        parse(document)
    except InvalidInput:
        return
    assert [error.message for error in SCHEMA.iter_errors(document)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nname: y\n", "'name' is given twice"),
        ("a: &a [x, x, x, x, x, x, x, x]\n" + bomb(7), "holds more than 200000 values"),
        ("[" * 5000, "nested too deeply"),
        ("a: 1\n---\nb: 1\n", "expected a single document"),
        ("a: !!timestamp 2026-12-01\n", "is no value of JSON"),
        ("a: " + "9" * 5000 + "\n", "cannot be read"),
    ],
    ids=["key twice", "aliases", "depth", "two documents", "date", "number"],
)
def test_files_that_are_no_plain_document(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "story.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"story\.yaml: ") as raised:
        load(path)
    assert said in str(raised.value)


def test_a_file_is_read_no_further_than_it_may_be_long(tmp_path: Path) -> None:
    """Packed or not."""
    path = tmp_path / "story.yaml"
    for data in (b"#" * (MOST_YAML + 1), gzip.compress(b"#" * (MOST_YAML + 1))):
        path.write_bytes(data)
        with pytest.raises(InvalidInput, match=f"has more than {MOST_YAML} bytes"):
            load(path)


def test_store_to_nowhere(tmp_path: Path) -> None:
    """The option is named, before anything is run."""
    (tmp_path / "file").write_text("")
    story = tmp_path / "good.yaml"
    story.write_text(yaml.safe_dump(GOOD))
    result = CliRunner().invoke(app, ["scenario", str(story), "--store", str(tmp_path / "file" / "kept")])
    assert isinstance(result.exception, InvalidInput)
    assert "--store" in str(result.exception)


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

"""One table has the steps of a workload, and whatever writes a state asks it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuer.domain.workload import TRANSITIONS, IllegalTransition, State

ROOT = Path(__file__).resolve().parents[2] / "queuer"
STATES = "|".join(f"'{state}'" for state in State)


def test_every_state_is_reached_and_an_end_is_final() -> None:
    reached, before = {State.QUEUED}, set[State]()
    while reached != before:
        before = set(reached)
        reached |= {after for start, after in TRANSITIONS if start in before}
    assert reached == set(State)
    assert not [start for start, _ in TRANSITIONS if start.ended]


def test_a_step_that_the_table_lacks_is_refused() -> None:
    assert State.QUEUED.to(State.ADMITTED) is State.ADMITTED
    with pytest.raises(IllegalTransition, match="from Queued to Running"):
        State.QUEUED.to(State.RUNNING)


def test_what_may_be_evicted_has_started() -> None:
    assert [state for state in State if state.evictable] == [State.ADMITTED, State.PLACING, State.RUNNING]


def test_every_new_state_in_memory_comes_from_the_table() -> None:
    """`replace(live, state=…)` in the controller takes what `State.to` answers."""
    found = list[str]()
    for path in sorted((ROOT / "controller").rglob("*.py")):
        for function in _functions(ast.parse(path.read_text())):
            sure = {
                target.id
                for node in ast.walk(function)
                if isinstance(node, ast.Assign) and _asks(node.value)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for value in _states_written(function):
                if not _asks(value) and not (isinstance(value, ast.Name) and value.id in sure):
                    found.append(f"{path.name}: {function.name}: state={ast.unparse(value)}")
    assert found == []


def test_sql_writes_the_states_that_it_is_given() -> None:
    """One module steps from state to state, one takes in jobs; neither spells a state."""
    writing = dict[str, list[str]]()
    for path in sorted((ROOT / "store").rglob("*.py")):
        for statement in re.findall(r'"""(.*?)"""', path.read_text(), re.DOTALL):
            if re.search(r"INSERT INTO workload\b|UPDATE workload\b[^;]*?\bSET\b[^;]*?\bstate = ", statement):
                writing.setdefault(path.stem, []).append(statement)
    assert {name: len(found) for name, found in writing.items()} == {"transitions": 2, "workloads": 1}
    assert not [s for found in writing.values() for s in found if re.search(STATES, s)]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _states_written(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "replace":
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "state")


def _asks(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "to" for node in ast.walk(value))

"""`queuer serve api` as a process, with the command line as its client: what an admin and a user type."""

from __future__ import annotations

import copy
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.api.rows import TREE
from tests.waiting import PATIENCE

START_SECONDS = 120
NOBODY = "warning: no controller has ever led on this database: nothing starts\n"


def environment(**settings: str) -> Mapping[str, str]:
    return {**os.environ, "NO_COLOR": "1", "QUEUER_AUTH": "none", **settings}


@pytest.fixture
def server(database_url: str) -> Iterator[str]:
    """The URL of an API server on a free port over a fresh database."""
    process = subprocess.Popen(
        [sys.executable, "-m", "queuer", "serve", "api"],
        env=environment(QUEUER_DATABASE_URL=database_url, QUEUER_PORT="0"),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        ready, _, _ = select.select([process.stderr], [], [], START_SECONDS)
        assert ready, "the server said nothing"
        url = json.loads(process.stderr.readline())["url"]
        deadline = time.monotonic() + START_SECONDS
        while httpx2.get(f"{url}/readyz", trust_env=False, timeout=60).status_code != 200:
            assert time.monotonic() < deadline
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.stderr.close()


def queuer(url: str, *arguments: str, expect: int = 0, text: str | None = None) -> tuple[str, str]:
    """Stdout and stderr of `queuer ARGUMENTS`."""
    done = subprocess.run(
        [sys.executable, "-m", "queuer", *arguments], env=environment(QUEUER_API=url), input=text,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_an_admin_applies_a_tree_and_looks_at_it(server: str, tmp_path: Path) -> None:
    document = tmp_path / "tree.yaml"
    document.write_text("kind: QueueTree\nqueues: {root: {qouta: []}}")
    _, said = queuer(server, "apply", "-f", str(document), "-y", expect=2)
    assert "queues.root.qouta: unknown field (did you mean quota?) at /queues/root/qouta" in said
    document.write_text(yaml.safe_dump(TREE))
    plan, _ = queuer(server, "apply", "-f", str(document), "--dry-run=server")
    assert "+ root.research.team-a: new" in plan
    assert json.loads(queuer(server, "queue", "ls", "-o", "json")[0])["revision"] == 0
    _, said = queuer(server, "apply", "-f", str(document), "-y", "--reason", "a first tree")
    assert "applied as revision 1" in said
    assert "no differences" in queuer(server, "apply", "-f", str(document), "-y")[1]
    tree, _ = queuer(server, "queue", "tree")
    assert "team-a" in tree
    assert not any(line.endswith(" ") for line in tree.splitlines())
    assert "guaranteed" in queuer(server, "queue", "ls")[0]
    assert "team-b" in queuer(server, "queue", "show", "root.research.team-b")[0]
    exported, _ = queuer(server, "export")
    assert queuer(server, "diff", "-f", "-", text=exported) == ("", NOBODY)
    assert "no differences" in queuer(server, "apply", "-f", "-", "-y", text=exported)[1]
    subtree, _ = queuer(server, "export", "--root", "root.research.team-a", "-o", "json")
    assert queuer(server, "diff", "-f", "-", text=subtree) == ("", NOBODY)


def test_an_admin_plans_a_change_for_another_to_apply(server: str, tmp_path: Path) -> None:
    document = tmp_path / "tree.yaml"
    document.write_text(yaml.safe_dump(TREE))
    queuer(server, "apply", "-f", str(document), "-y")
    grown = copy.deepcopy(TREE)
    grown["queues"]["root.research.team-b"]["weight"] = 2
    document.write_text(yaml.safe_dump(grown))
    said, _ = queuer(server, "diff", "-f", str(document), expect=1)
    assert said.startswith("~ root.research.team-b: weight 1 -> 2\n  impact: unknown, no decision")
    _, then = queuer(server, "plan", "-f", str(document))
    id = then.split("--changeset ")[1].strip()
    assert "-y" in queuer(server, "apply", "--changeset", id, expect=2)[1]
    assert "revision 2" in queuer(server, "apply", "--changeset", id, "-y")[1]
    queuer(server, "apply", "--changeset", id, "-y", expect=5)
    assert queuer(server, "diff", "-f", str(document)) == ("", NOBODY)
    del grown["queues"]["root.research.team-b"]
    document.write_text(yaml.safe_dump({**grown, "prune": True}))
    assert "--reason" in queuer(server, "apply", "-f", str(document), "-y", expect=2)[1]
    queuer(server, "apply", "-f", str(document), "-y", "--reason", "the team is dissolved")


def test_an_address_that_others_reach_needs_the_flag_that_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "queuer", "serve", "api", "--host", "0.0.0.0"],
        env=environment(QUEUER_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none"),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--allow-unauthenticated-network" in done.stderr


def test_an_answer_is_not_held_back_for_the_clients_acknowledgement(server: str) -> None:
    """On a connection that is kept; the system holds nothing back on the first dozen requests."""
    took = []
    with httpx2.Client(base_url=server, trust_env=False, timeout=60) as client:
        for _ in range(60):
            began = time.perf_counter()
            client.get("/livez")
            took.append(time.perf_counter() - began)
    assert min(took[40:]) < 0.03


def test_a_stream_does_not_hold_up_the_end(database_url: str) -> None:
    """The streams end as if they were over: those that uvicorn cuts off in the end are incomplete."""
    process = subprocess.Popen(
        [sys.executable, "-m", "queuer", "serve", "api"],
        env=environment(QUEUER_DATABASE_URL=database_url, QUEUER_PORT="0"), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    with process:
        line = next(line for line in process.stderr if "serving" in line)
        url = json.loads(line)["url"]
        with httpx2.stream("GET", f"{url}/api/v1/stream", timeout=PATIENCE, trust_env=False) as response:
            lines = response.iter_lines()
            assert next(lines) == "event: beat"
            process.send_signal(signal.SIGTERM)
            list(lines)
        assert process.wait(60) == 0

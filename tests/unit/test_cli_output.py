"""Text on the terminal: nothing a job writes may steer it; amounts and ages read right."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from queuer.cli.jobs import groups_of, view_of
from queuer.cli.output import Color, Printer, View, clean, local, written
from queuer.cli.queues import quota_text
from queuer.cli.topo import held_for
from queuer.cli.tree import bar, drawn, main_resource
from queuer.cli.whatif import print_simulation
from queuer.cli.why import explain, reasons
from queuer.domain.quantity import age, devices
from tests.cli import queuer

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 11, 24, tzinfo=UTC)
PAGE = {"asOf": NOW.isoformat()}


def account(**amounts: str) -> dict[str, Any]:
    return {
        "resource": GPU,
        "flavor": None,
        "used": "0",
        "guaranteed": "0",
        "borrowed": "0",
        "lent": "0",
    } | amounts


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("two\nlines", "two lines"),
        ("bell\a back\b", "bell back"),
        ("right\u202eleft", "rightleft"),
        ("name – ü 漢", "name – ü 漢"),  # noqa: RUF001
    ],
)
def test_control_characters_never_reach_the_terminal(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (200_000, "2d")],
)
def test_an_age_is_one_unit_rounded_down(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


@pytest.mark.parametrize(
    ("amounts", "drawn_bar"),
    [
        ({}, ""),
        ({"guaranteed": "10"}, "-" * 16),
        ({"guaranteed": "10", "used": "10"}, "#" * 16),
        ({"guaranteed": "10", "used": "5", "lent": "5"}, "#" * 8 + "." * 8),
        ({"guaranteed": "10", "used": "20", "borrowed": "10"}, "#" * 8 + ":" * 8),
        ({"used": "4", "borrowed": "4"}, ":" * 16),
        ({"guaranteed": "4", "used": "1", "lent": "1"}, "#" * 4 + "." * 4 + "-" * 8),
    ],
)
def test_the_bar_tells_own_borrowed_lent_and_free_apart(amounts: dict[str, str], drawn_bar: str) -> None:
    assert bar(account(**amounts)) == drawn_bar


def test_the_tree_is_drawn_with_parents_before_children() -> None:
    paths = ["root", "root.a", "root.a.x", "root.a.y", "root.b"]
    rows = drawn(paths, path=str, parent=lambda path: path.rpartition(".")[0] or None)
    names = [branch + path.rpartition(".")[2] for branch, path in rows]
    assert names == ["root", "├─ a", "│  ├─ x", "│  └─ y", "└─ b"]


def test_a_document_subtree_shows_the_resource_that_most_rows_name() -> None:
    row = {"flavor": None, "guaranteed": "1", "limit": None, "lend": None}
    queues: list[dict[str, Any]] = [
        {"quota": [{"resource": "cpu", **row}, {"resource": GPU, **row}], "accounts": []},
        {"quota": [{"resource": GPU, **row}], "accounts": [{"resource": "memory"}]},
    ]
    assert main_resource(queues) == GPU
    assert main_resource([{"quota": [], "accounts": []}]) is None


def test_a_quota_row_in_few_words() -> None:
    row = {"resource": GPU, "flavor": "h100", "guaranteed": "16", "limit": "24", "lend": None}
    assert quota_text(row) == "gpu 16 guaranteed, limit 24 (h100)"


def test_an_access_is_readable() -> None:
    assert written(["alice", "bob"]) == "alice bob"
    assert written({"limits": {"gpu": "8"}, "maxRunning": 2}) == "(limits (gpu 8), maxRunning 2)"


@pytest.mark.parametrize(
    ("demand", "shown"),
    [
        ({GPU: "64", "cpu": "96", "pods": "8"}, "64 gpu"),
        ({"cpu": "500m", "memory": "1Gi", "pods": "1"}, "500m cpu"),
        ({"pods": "1"}, "1 pod"),
    ],
)
def test_what_a_job_asks_for_is_said_by_its_scarcest_part(demand: dict[str, str], shown: str) -> None:
    assert devices(demand) == shown


def workload(**changes: Any) -> dict[str, Any]:
    reason = {"token": "TopologyPlacementFailed", "text": "needs 8 nodes in one rack; best rack r07 has 6"}
    explanation = {
        "cycle": 7, "ageSeconds": 4.2, "kept": 7, "verdict": "WAIT", "primary": reason,
        "paragraphs": [
            {"label": "would admit", "text": "topology=block"},
            {"label": "next", "text": "queuer queue \x1b[31mshow root.team-a"},
        ],
    }  # fmt: skip
    found = {
        "kind": "PyTorchJob", "name": "llama", "queue": "root.team-a", "state": "Queued",
        "stateSince": "2026-11-21T10:00:00Z", "deleted": None, "asOf": "2026-11-21T10:09:00Z",
        "explanation": explanation,
    }  # fmt: skip
    return found | changes


def test_why_prints_verdict_reason_and_paragraphs() -> None:
    assert [str(line) for line, _ in explain(workload())] == [
        "pytorchjob/llama  Queued 9m  in root.team-a    cycle 7, 4s ago",
        "WAIT  TopologyPlacementFailed: needs 8 nodes in one rack; best rack r07 has 6",
        "  would admit   topology=block",
        "  next          queuer queue [31mshow root.team-a",
    ]


def test_why_of_a_running_job_counts_from_its_state_on_and_names_no_reason() -> None:
    nothing: dict[str, Any] = {
        "cycle": None, "ageSeconds": None, "kept": None, "verdict": None, "primary": None, "paragraphs": [],
    }  # fmt: skip
    job = workload(state="Running", stateSince="2026-11-21T10:08:00Z", explanation=nothing)
    assert [str(line) for line, _ in explain(job)] == ["pytorchjob/llama  Running 1m  in root.team-a"]


def test_a_simulation_tells_the_price_of_a_change_as_why_does(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {
        "answer": "evicts", "places": [{"podSet": "main", "count": 1, "flavor": "h100", "nodes": {"n1": 1}}],
        "evictions": [{"gangs": 1, "queue": "root.b", "amounts": {GPU: "8"}}], "primary": None, "others": [],
        "wouldAdmit": [{"change": "topology=any", "evictions": 1}, {"change": "team-b/x ends", "evictions": 0}],
        "warnings": [], "label": "feasible", "asOf": "2026-11-21T10:00:00.000Z",
    }  # fmt: skip
    print_simulation(answer, "8xgpu", Printer(color=Color.NEVER))
    assert capsys.readouterr().out.splitlines() == [
        "8xgpu  evicts",
        "  main         1 pod on h100: n1 (1)",
        "  evicts       1 gang of root.b: 8 gpu",
        "  would admit  topology=any (1 eviction)  |  team-b/x ends",
    ]


def test_why_is_wrapped_at_words_on_a_narrow_terminal_but_for_what_is_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    for line, indent in explain(workload()):
        Printer(color=Color.NEVER).line(line, indent=indent)
    assert capsys.readouterr().out.splitlines() == [
        "pytorchjob/llama  Queued 9m  in",
        "root.team-a    cycle 7, 4s ago",
        "WAIT  TopologyPlacementFailed: needs 8",
        "      nodes in one rack; best rack r07",
        "      has 6",
        "  would admit   topology=block",
        "  next          queuer queue [31mshow root.team-a",
    ]


def test_moments_of_a_sentence_are_told_in_the_zone_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert (
            local("held by root at 2020-11-24 18:43:07 UTC: why")
            == "held by root at 2020-11-25 03:43:07 JST: why"
        )
        today = datetime.now().astimezone().replace(hour=12, minute=0, second=7)
        assert local(f"at {today.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC") == "at 12:00:07 JST"
        for quoted in ("2026-02-30 00:00:00 UTC", "9999-12-31 23:59:59 UTC"):
            assert local(f"said {quoted}") == f"said {quoted}"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("2026-11-24T12:30:00Z", " from "),
        ("2026-11-24T11:50:00Z", ", as room frees up: "),
        (None, ", once its victims have left: "),
    ],
)
def test_a_reservation_whose_time_has_come_is_told_without_one(start: str | None, said: str) -> None:
    held = {"namespace": "a", "name": "big", "queue": "root.a", "start": start, "amounts": {GPU: "8"}}
    domain = {"domain": "r1", "parent": "b1", "heldFor": [held]}
    (line,) = held_for({"resource": GPU, "asOf": "2026-11-24T12:00:00Z", "domains": [domain]})
    assert line.startswith(f"reserved for a/big{said}")
    assert line.endswith(": b1/r1 (8)")


def test_a_long_deed_of_the_audit_widens_no_other_and_says_why() -> None:
    """Rights, queues and reasons are free text: a column after one of them would be out of sight."""
    deeds: list[dict[str, Any]] = [
        {"id": 1, "at": "2026-11-24T12:00:00Z", "actor": "alice", "action": "workload.evict", "text": text,
         "revision": None, "source": "cli", "reason": "disk fault", "queues": [], "detail": {}}
        for text in ("evict job/" + "b" * 500, "ordered: evict job/a in team-a")
    ]  # fmt: skip
    page = {"items": deeds, "next": None}
    done = queuer(httpx2.MockTransport(lambda _: httpx2.Response(200, json=page)), "audit", "--no-headers")
    assert done.out.splitlines()[1].split("  ")[-1] == "ordered: evict job/a in team-a (disk fault)"
    assert max(map(len, re.findall(" +", done.out))) < 20, "blanks that only the longest deed needs"


@pytest.mark.parametrize("view", [view_of(PAGE), groups_of(PAGE, "user"), reasons(NOW)])
def test_what_jobs_ask_that_cannot_be_read_is_a_dash_in_every_list(
    view: View, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = [column for column in view.columns if column.title == "ASKS"]
    Printer(headers=False).table(asks, [{"holds": {}, "demand": {}, "amounts": {}}])
    assert capsys.readouterr().out == "-\n"

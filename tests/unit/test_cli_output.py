"""Text on the terminal: nothing a job writes may steer it; amounts and ages read right."""

from __future__ import annotations

from typing import Any

import pytest

from queuer.api.workloads.detail import Detail
from queuer.cli.output import age, clean, written
from queuer.cli.queues import quota_text
from queuer.cli.tree import bar, drawn, main_resource
from queuer.cli.why import explain
from queuer.domain.figures import devices

GPU = "nvidia.com/gpu"


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
        ({"guaranteed": "10"}, "-" * 20),
        ({"guaranteed": "10", "used": "10"}, "#" * 20),
        ({"guaranteed": "10", "used": "5", "lent": "5"}, "#" * 10 + "." * 10),
        ({"guaranteed": "10", "used": "20", "borrowed": "10"}, "#" * 10 + ":" * 10),
        ({"used": "4", "borrowed": "4"}, ":" * 20),
        ({"guaranteed": "4", "used": "1", "lent": "1"}, "#" * 5 + "." * 5 + "-" * 10),
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
        ({"pods": "1"}, "1 pods"),
    ],
)
def test_what_a_job_asks_for_is_said_by_its_scarcest_part(demand: dict[str, str], shown: str) -> None:
    assert devices(demand) == shown


def detail(**parts: Any) -> dict[str, Any]:
    """As the API tells it; times may be epoch seconds."""
    return Detail.model_validate(parts).model_dump(mode="json", by_alias=True)


def workload(**changes: Any) -> dict[str, Any]:
    reason = {
        "token": "TopologyPlacementFailed",
        "verdict": "WAIT",
        "text": "needs 8 nodes in one rack; best rack r07 has 6",
        "params": {},
        "since": "2026-11-21T10:00:00Z",
    }
    found = {
        "uid": "u1", "kind": "PyTorchJob", "namespace": "team-a", "name": "llama", "queue": "root.team-a",
        "user": "", "state": "Queued", "attempt": 1,
        "submitted": "2026-11-21T10:00:00Z", "admitted": None, "landed": None,
        "finished": None, "deleted": None, "required": "rack", "preferred": None,
        "asOf": "2026-11-21T10:09:00Z",
        "podSets": [{"name": "worker", "count": 8, "minCount": None, "requests": {GPU: "8", "pods": "1"}}],
        "admission": None, "timeline": [],
        "explanation": {
            "cycle": 7, "ageSeconds": 4.2, "verdict": "WAIT", "primary": reason,
            "others": [{**reason, "token": "BorrowingLimitReached", "text": "48 of 48 borrowed"}],
            "wouldAdmit": [{"change": "topology=block", "evictions": 0}], "detail": detail(),
            "next": "queuer queue show root.team-a",
        },
    }  # fmt: skip
    return found | changes


def test_why_says_verdict_reason_others_and_what_would_help() -> None:
    lines = [str(line) for line in explain(workload())]
    assert lines[0] == "pytorchjob/llama  Queued 9m  in root.team-a    cycle 7, 4s ago"
    assert lines[1] == "WAIT  TopologyPlacementFailed: needs 8 nodes in one rack; best rack r07 has 6"
    assert "  also          BorrowingLimitReached: 48 of 48 borrowed" in lines
    assert "  asks          8 x worker of 8 nvidia.com/gpu, in one rack" in lines
    assert "  would admit   topology=block" in lines
    assert lines[-1] == "  next          queuer queue show root.team-a"


@pytest.mark.parametrize(
    ("hosts", "held", "said"),
    [
        ({}, 8, "8 x worker to come, planned on n1 (h100, rack r1)"),
        ({"n2": 3, "n3": 3}, 6, "6 x worker on n2, n3 (h100, rack r1)"),
        ({"n2": 8}, None, "8 x worker on n2 (h100, rack r1)"),
    ],
)
def test_why_says_where_pods_are_once_they_are_there(
    hosts: dict[str, int], held: int | None, said: str
) -> None:
    place = {
        "podSet": "worker",
        "flavor": "h100",
        "count": 8,
        "nodes": {"n1": 8},
        "selector": {"x/rack": "r1"},
    }
    admission = {"placements": [{**place, "hosts": hosts, "held": held}]}
    assert f"  placed        {said}" in [str(line) for line in explain(workload(admission=admission))]


def test_why_says_who_queued_it_and_how_its_last_attempt_ended() -> None:
    job = workload(user="alice", attempt=2)
    note = "evicted for team-b/eval in root.team-b, which takes back what it is guaranteed"
    job["explanation"]["detail"] = detail(evicted={"at": 1_795_255_740.0, "cause": "reclaim", "note": note})
    lines = [str(line) for line in explain(job)]
    assert "  queued by     alice" in lines
    assert f"  attempt       2; 10:09:00  {note}" in lines


def test_why_says_when_it_may_start() -> None:
    """asOf is 10:09, 1795255740 s."""
    job = workload()
    start = 1_795_255_740
    kept = "(declared ends; 78% of such ranges held, n=9 in 7 d)"
    for likely, last, said in (
        (
            start + 900,
            start + 7_200,
            f"starts in 5m to 2h from now, likely in 15m, if nothing comes before it {kept}",
        ),
        (
            None,
            None,
            f"starts in 5m or later, if nothing comes before it {kept}",
        ),
    ):
        job["explanation"]["detail"] = detail(
            estimate={
                "from": start + 300, "likely": likely, "to": last, "basis": "declared ends", "n": 9, "hitRate": 0.778,
            }
        )  # fmt: skip
        assert f"  estimate      {said}" in [str(line) for line in explain(job)]


def test_why_says_what_is_reserved_for_it() -> None:
    """asOf is 10:09, 1795255740 s. A start that has passed is a hold."""
    job, now = workload(), 1_795_255_740
    for start, hosts, said in (
        (now + 900, ["n1", "n2"], "n1, n2, from 15m from now; for 30m at most"),
        (now - 60, list("abcdef"), "a, b, c, d and 2 more, what frees up is kept for it; for 30m at most"),
    ):
        job["explanation"]["detail"] = detail(
            reservation={"start": start, "expires": now + 1_800, "hosts": hosts}
        )
        assert f"  reserved      {said}" in [str(line) for line in explain(job)]


def test_why_says_what_is_overridden_by_whom_and_why() -> None:
    job = workload()
    job["override"] = {
        "hold": True, "priority": 500, "by": "root", "at": "2026-11-21T10:05:00Z", "reason": "maintenance",
    }  # fmt: skip
    said = "  override      held, priority 500 by root at 10:05:00: maintenance"
    assert said in [str(line) for line in explain(job)]


def test_why_says_that_it_is_to_be_evicted_by_order() -> None:
    ordered = {"at": "2026-11-21T10:39:00Z", "reason": "revision 3: maintenance"}
    said = "  to leave      evicted in 30m: revision 3: maintenance"
    assert said in [str(line) for line in explain(workload(eviction=ordered))]


def test_why_says_what_is_free_what_does_not_count_and_who_holds_it() -> None:
    """asOf is 10:09, 1795255740 s."""
    job = workload()
    holder = {"resource": GPU, "amount": "40", "queue": "root.team-b"}
    named = {**holder, "workload": "u9", "namespace": "team-b", "name": "bert"}
    levels = [
        {"queue": "root.team-a", "room": {GPU: "16"}},
        {"queue": "root", "room": {"cpu": "9", GPU: "72"}},
    ]
    reserved = {"queue": "root.c", "starts": 1_795_255_740 + 3600}
    job["explanation"]["detail"] = detail(
        available=[{"flavor": "h100", "free": {"cpu": "99", GPU: "72"}, "headroom": levels}],
        excluded={
            "nodes": 151,
            "of": 160,
            "by": [{"why": "Cordoned", "nodes": 1}, {"why": "Full", "nodes": 150}],
            "domains": {"level": "rack", "short": 20, "of": 20},
        },
        holders=[
            {**reserved, "reservation": "u7", "name": "big", "namespace": "team-c"},
            reserved,
            holder,
            {**named, "ends": 1_795_255_740 + 600},
            {**named, "ends": 1_795_255_740 - 600},
            {**named, "leaving": True},
        ],
        ahead={"gangs": 3, "of": 12},
    )
    lines = [str(line) for line in explain(job)]
    assert lines[4:13] == [
        "  free          72 gpu on h100; room by quota: root.team-a 16, root 72",
        "  nodes         151 of 160 have no room for one pod: 1 Cordoned, 150 Full; 20 of 20 x rack are too small",
        "  holds it      reserved for team-c/big in 1h",
        "  holds it      reserved for a job of root.c in 1h",
        "  holds it      root.team-b: 40 gpu",
        "  holds it      team-b/bert in root.team-b: 40 gpu, ends in 10m",
        "  holds it      team-b/bert in root.team-b: 40 gpu, overdue",
        "  holds it      team-b/bert in root.team-b: 40 gpu, leaving",
        "  ahead         3 of the 12 that wait in its queue",
    ]


def test_why_of_a_running_job_counts_from_its_landing_and_names_no_reason() -> None:
    nothing: dict[str, Any] = {
        "cycle": None,
        "ageSeconds": None,
        "verdict": None,
        "primary": None,
        "others": [],
        "wouldAdmit": [],
        "detail": detail(),
        "next": "kubectl get pods",
    }
    job = workload(state="Running", landed="2026-11-21T10:08:00Z", explanation=nothing)
    lines = [str(line) for line in explain(job)]
    assert lines[0] == "pytorchjob/llama  Running 1m  in root.team-a"
    assert not any("WAIT" in line for line in lines)

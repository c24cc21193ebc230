"""What `queuer why` and the page tell of a job beside its reason: a label and a line for each thing that is known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from queuer.api.workloads.models import WorkloadDetail
from queuer.api.workloads.paragraphs import paragraphs
from queuer.api.workloads.timeline import Held
from queuer.domain.reasons import Token

GPU = "nvidia.com/gpu"
YES, END = "evictable: yes", "promised end: none: it runs to its own end"


def told(*, detail: dict[str, Any] | None = None, past: Sequence[Held] = (), **changes: Any) -> list[str]:
    """Label and text of each. Times may be epoch seconds."""
    reason = {
        "token": "TopologyPlacementFailed", "verdict": "WAIT", "text": "no rack is large enough", "params": {},
    }  # fmt: skip
    explanation = {
        "uid": "u1", "state": "Queued", "asOf": None, "cycle": 7, "ageSeconds": 4.2, "kept": 7, "verdict": "WAIT",
        "primary": reason, "others": [{**reason, "token": "BorrowingLimitReached", "text": "48 of 48 borrowed"}],
        "wouldAdmit": [{"change": "all pods in one block", "evictions": 0}], "detail": detail or {},
        "next": "queuer queue show root.team-a",
    }  # fmt: skip
    job = {
        "uid": "u1", "kind": "PyTorchJob", "namespace": "team-a", "name": "llama", "queue": "root.team-a",
        "user": "", "priority": 0, "state": "Queued", "attempt": 1, "demand": {}, "reason": None, "domains": [],
        "submitted": "2026-11-21T10:00:00Z", "admitted": None, "landed": None, "finished": None, "deleted": None,
        "required": "rack", "preferred": None, "preemptible": True, "maxRuntimeSeconds": None, "hold": False,
        "stateSince": "2026-11-21T10:00:00Z",
        "podSets": [{"name": "worker", "count": 8, "requests": {GPU: "8", "pods": "1"}}],
        "admission": None, "eviction": None, "timeline": [], "asOf": "2026-11-21T10:09:00Z",
        "explanation": explanation, **changes,
    }  # fmt: skip
    found = paragraphs(WorkloadDetail.model_validate(job), past)
    return [f"{each.label}: {each.text}" for each in found]


def test_other_reasons_and_what_would_help() -> None:
    lines = told()
    assert "also: BorrowingLimitReached: 48 of 48 borrowed" in lines
    assert "asks: 8 x worker of 8 gpu, in one rack" in lines
    assert "would admit: all pods in one block" in lines
    assert lines[-1] == "next: queuer queue show root.team-a"


@pytest.mark.parametrize(
    ("hosts", "held", "said"),
    [
        ({}, 8, "8 x worker to come, planned on n1 (h100, rack r1)"),
        ({"n2": 3, "n3": 3}, 6, "6 x worker on n2, n3 (h100, rack r1)"),
        ({"n2": 8}, None, "8 x worker on n2 (h100, rack r1)"),
    ],
)
def test_it_says_where_pods_are_once_they_are_there(
    hosts: dict[str, int], held: int | None, said: str
) -> None:
    place = {
        "podSet": "worker",
        "flavor": "h100",
        "count": 8,
        "nodes": {"n1": 8},
        "selector": {"x/rack": "r1"},
    }
    admission = {
        "id": "a",
        "cycle": 1,
        "domains": [],
        "placements": [{**place, "hosts": hosts, "held": held}],
    }
    assert f"placed: {said}" in told(admission=admission)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"maxRuntimeSeconds": None, "preemptible": True}, [END, YES]),
        (
            {"maxRuntimeSeconds": 3600, "preemptible": False},
            ["promised end: 2026-11-21 11:01:00 UTC, in 52m", "evictable: no: it is not preemptible"],
        ),
        ({"maxRuntimeSeconds": 60, "preemptible": True}, ["promised end: 2026-11-21 10:02:00 UTC, 7m ago", YES]),
        ({"safeUntil": "2026-11-21T22:01:00Z"}, [END, f"{YES}; not before 2026-11-21 22:01:00 UTC (minRuntime)"]),
        ({"safeUntil": "2026-11-21T10:02:00Z"}, [END, YES]),
        (
            {"safeUntil": "2026-11-21T22:01:00Z", "eviction": {"at": "2026-11-21T11:00:00Z", "reason": "a lease ends"}},
            [END, YES],
        ),
        ({"state": "Queued", "maxRuntimeSeconds": 3600}, ["promises: to run 1h at most"]),
        ({"state": "Succeeded", "maxRuntimeSeconds": 3600}, []),
    ],
)  # fmt: skip
def test_it_says_until_when_it_runs_and_whether_it_may_be_evicted(
    job: dict[str, Any], said: list[str]
) -> None:
    lines = told(**{"state": "Running", "landed": "2026-11-21T10:01:00Z", **job})
    assert [line for line in lines if line.startswith(("promise", "evictable"))] == said


def test_it_says_who_queued_it_and_how_its_last_attempt_ended() -> None:
    note = "evicted for team-b/eval in root.team-b, which takes back what it is guaranteed"
    evicted = {"at": 1_795_255_740.0, "cause": "reclaim", "note": note}
    lines = told(user="alice", attempt=2, detail={"evicted": evicted})
    assert "queued by: alice" in lines
    assert f"attempt: 2; 2026-11-21 10:09:00 UTC  {note}" in lines
    step = {"at": "2026-11-21T10:09:00Z", "what": "workload.state", "text": f"{note}, attempt 1"}
    lines = told(attempt=2, detail={"evicted": evicted}, timeline=[step])
    assert [line for line in lines if note in line] == [f"history: 2026-11-21 10:09:00 UTC  {step['text']}"]
    assert "attempt: 2" in lines


def test_it_says_when_it_may_start() -> None:
    """asOf is 10:09, 1795255740 s."""
    start = 1_795_255_740
    kept = "(declared ends; 78% of such ranges held, n=9 in 7 d)"
    for likely, last, said in (
        (
            start + 900,
            start + 7_200,
            f"starts in 5m to 2h from now, likely in 15m, if nothing comes before it {kept}",
        ),
        (None, None, f"starts in 5m or later, if nothing comes before it {kept}"),
    ):
        estimate = {
            "from": start + 300, "likely": likely, "to": last, "basis": "declared ends", "n": 9, "hitRate": 0.778,
        }  # fmt: skip
        assert f"estimate: {said}" in told(detail={"estimate": estimate})
        young = {**estimate, "n": 1, "hitRate": 0.0}
        (line,) = [row for row in told(detail={"estimate": young}) if row.startswith("estimate: ")]
        assert line.endswith("(declared ends; fewer than 5 such ranges of the last 7 d are over)"), (
            "one says nothing"
        )


def test_it_says_what_is_reserved_for_it() -> None:
    """asOf is 10:09, 1795255740 s. Without a start it is a hold."""
    now = 1_795_255_740
    for start, hosts, said in (
        (now + 900, ["n1", "n2"], "n1, n2, from 15m from now, if others end as expected; for 30m at most"),
        (None, list("abcdef"), "a, b, c, d and 2 more, what frees up is kept for it; for 30m at most"),
    ):
        reservation = {"start": start, "expires": now + 1_800, "hosts": hosts}
        assert f"reserved: {said}" in told(detail={"reservation": reservation})


def test_it_says_what_is_overridden_by_whom_and_why() -> None:
    held = {"value": True, "by": "alice", "at": "2026-11-21T10:04:00Z", "reason": "no data"}
    urgent = {"value": 500, "by": "root", "at": "2026-11-21T10:05:00Z", "reason": ""}
    said = (
        "held by alice at 2026-11-21 10:04:00 UTC: no data; priority 500 by root at 2026-11-21 10:05:00 UTC"
    )
    assert f"override: {said}" in told(override={"hold": held, "priority": urgent})


def test_it_says_that_it_is_to_be_evicted_by_order() -> None:
    ordered = {"at": "2026-11-21T10:39:00Z", "reason": "revision 3: maintenance"}
    said = "to leave: evicted in 30m: revision 3: maintenance"
    assert said in told(eviction=ordered)


def test_it_says_what_is_free_what_does_not_count_and_who_holds_it() -> None:
    """asOf is 10:09, 1795255740 s."""
    holder = {"resource": GPU, "amount": "40", "queue": "root.team-b"}
    named = {**holder, "workload": "u9", "namespace": "team-b", "name": "bert"}
    levels = [
        {"queue": "root.team-a", "room": {GPU: "16"}},
        {"queue": "root", "room": {"cpu": "9", GPU: "72"}},
    ]
    foreign = {"outside": True, "resource": GPU, "amount": "8", "pods": 1}
    reserved = {"queue": "root.c", "starts": 1_795_255_740 + 3600}
    lines = told(detail={
        "available": [{"flavor": "h100", "free": {"cpu": "99", GPU: "72"}, "headroom": levels}],
        "excluded": {
            "nodes": 151,
            "of": 160,
            "by": [{"why": "Cordoned", "nodes": 1}, {"why": "Full", "nodes": 148},
                {"why": "TooSmall", "nodes": 2, "largest": {GPU: "8"}}],
            "domains": {"level": "rack", "short": 20, "of": 20},
        },
        "holders": [
            {**reserved, "reservation": "u7", "name": "big", "namespace": "team-c"},
            reserved,
            holder,
            {**named, "ends": 1_795_255_740 + 600},
            {**named, "ends": 1_795_255_740 + 600, "runs": 20},
            {**named, "ends": 1_795_255_740 - 600},
            {**named, "ends": 1_795_255_740 - 600, "runs": 20},
            {**named, "leaving": True},
            {**foreign, "namespace": "ml", "kind": "Job", "name": "big"},
            foreign,
        ],
        "ahead": {"gangs": 3, "of": 12},
    })  # fmt: skip
    assert lines[2:15] == [
        "free: 72 gpu on h100; room by quota: root.team-a 16, root 72",
        "nodes: 151 of 160 have no room for one pod: 1 Cordoned, 148 Full, 2 TooSmall (the largest has 8 gpu); "
        "20 of 20 domains of level rack are too small",
        "holds it: reserved for team-c/big in 1h",
        "holds it: reserved for a job of root.c in 1h",
        "holds it: root.team-b: 40 gpu",
        "holds it: team-b/bert in root.team-b: 40 gpu, ends in 10m",
        "holds it: team-b/bert in root.team-b: 40 gpu, ends in 10m, "
        "expected by the last 20 runs of such jobs in the queue",
        "holds it: team-b/bert in root.team-b: 40 gpu, overdue",
        "holds it: team-b/bert in root.team-b: 40 gpu",
        "holds it: team-b/bert in root.team-b: 40 gpu, leaving",
        "holds it: Job ml/big outside the queues: 8 gpu, 1 pod",
        "holds it: other pods outside the queues: 8 gpu, 1 pod",
        "ahead: 3 of the 12 that wait in its queue",
    ]


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([0.0, 0.2, 0.5, 60.4], ["waited: 1m: 1m WaitingForQuota"]),
        ([0.0, 0.7, 1.4, 61.4], ["waited: 1m1s: 1s PendingEvaluation, 1m WaitingForQuota"]),
        ([0.0, 0.1, 0.2, 0.4], []),
    ],
)
def test_a_reason_that_held_for_no_second_is_no_part_of_the_wait(ends: list[float], said: list[str]) -> None:
    tokens = (Token.PENDING_EVALUATION, Token.WAITING_FOR_PREEMPTED_WORKLOADS, Token.WAITING_FOR_QUOTA)
    past = [
        Held(token=token, text="", begin=begin, end=end, cycle=None)
        for token, (begin, end) in zip(tokens, pairwise(ends), strict=True)
    ]
    assert [line for line in told(past=past) if line.startswith("waited")] == said

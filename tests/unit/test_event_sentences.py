"""An event is a sentence for people: what happened, why, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from queuer.api.live.audit import deed_text
from queuer.domain.events import event_text


@pytest.mark.parametrize(
    ("type", "data", "text"),
    [
        ("workload.submitted", {"state": "Queued"}, "submitted"),
        ("workload.state", {"to": "Admitted", "attempt": 1, "cycle": 7, "domains": ["b1/r2"]}, "admitted to b1/r2"),
        ("workload.state", {"to": "Running", "attempt": 2}, "all its pods run, attempt 2"),
        ("workload.state", {"to": "Evicting", "cause": "nodeLost"}, "evicted: nodeLost"),
        (
            "workload.state",
            {"to": "Evicting", "cause": "reclaim", "note": "evicted for a job of root.a"},
            "evicted for a job of root.a",
        ),
        (
            "workload.command",
            {"verb": "hold", "outcome": "done", "message": "held", "by": "alice", "reason": "wrong data"},
            "hold by alice (wrong data), done: held",
        ),
        ("queue.updated", {"name": "root.a", "revision": 4}, "root.a, revision 4"),
        ("something.new", {"pods": 3, "of": {"a": 1}}, "pods 3"),
    ],
)  # fmt: skip
def test_an_event_in_words(type: str, data: dict[str, Any], text: str) -> None:
    assert event_text(type, data) == text


def test_a_deed_names_the_job_or_the_right_that_was_missing() -> None:
    job = {"kind": "Job", "name": "train", "namespace": "a", "uid": "u", "arguments": {"priority": 5}}
    assert deed_text("workload.prioritise", job, ()) == "prioritise job/train in a: priority 5"
    own = {**job, "arguments": {"priority": None}}
    assert deed_text("workload.prioritise", own, ()) == "prioritise job/train in a: priority own"
    for hold, said in ((False, "evict job/train in a"), (True, "evict job/train in a: hold")):
        assert deed_text("workload.evict", {**job, "arguments": {"hold": hold}}, ()) == said
    denied = {"right": "get audit.queuer.dev", "method": "GET", "path": "/api/v1/audit"}
    assert deed_text("denied", denied, ()) == "refused: may not get audit.queuer.dev (GET /api/v1/audit)"

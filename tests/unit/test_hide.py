"""A foreign job's identity stays hidden wherever an explanation tells of it; its queue and amounts stay."""

from __future__ import annotations

from typing import Any

from queuer.domain.reasons import (
    ChangeKind,
    Explanation,
    JobChange,
    Reason,
    Token,
    hide,
    namespaces_in,
)

MINE: dict[str, Any] = {"namespace": "team-a", "name": "mine", "queue": "root.a"}
THEIRS: dict[str, Any] = {"namespace": "team-b", "name": "secret", "queue": "root.b"}
AMOUNT = {"resource": "gpu", "amount": "8"}


def behind(whose: dict[str, Any]) -> Reason:
    """The job is behind this one."""
    who = {"owner": "uid-of-it", "name": whose["name"], "namespace": whose["namespace"]}
    params = {
        **who,
        "ownerQueue": whose["queue"],
        "queue": "root.a",
        "headUnstartable": True,
        "why": "its secret set",
    }
    return Reason(Token.BEHIND_IN_QUEUE, params)


def explanation(whose: dict[str, Any]) -> Explanation:
    """One that names this job in each place that there is."""
    bond = {"jobs": [behind(whose).params], "hosts": ["n0"], "left": 1, "victims": 1}
    return Explanation(
        primary=behind(whose),
        others=(Reason(Token.WAITING_FOR_PREEMPTED_WORKLOADS, bond),),
        would_admit=(JobChange(kind=ChangeKind.END, job={**whose, **AMOUNT, "workload": "uid-of-it"}),),
        detail={
            "holders": [{**whose, **AMOUNT, "workload": "uid-of-it"}],
            "evicted": {"for": {**whose, "beneficiary": "uid-of-it", "user": "secret"}},
        },
    )


def everything(told: Explanation) -> str:
    """All of it, sentences included."""
    texts = [reason.text for reason in (told.primary, *told.others)]
    return f"{told} {texts}"


def test_a_foreign_job_is_a_queue_and_an_amount() -> None:
    told = hide(explanation(THEIRS), "team-a".__eq__)
    for word in ("secret", "team-b", "uid-of-it"):
        assert word not in everything(told)
    assert told.primary.text.startswith("A job of root.b is ahead of it in root.a")
    assert (
        told.others[0].text == "1 node is held for it; it starts when the pods of 1 job of root.b have left."
    )
    assert told.would_admit[0].text == "a job of root.b with 8 gpu ends"
    assert told.detail["holders"] == [{"queue": "root.b", **AMOUNT}]


def test_what_may_be_read_is_the_same_object() -> None:
    """Thousands of jobs share one explanation; it is copied for nobody who may have it as it is."""
    mine = explanation(MINE)
    assert hide(mine, "team-a".__eq__) is mine
    assert set(namespaces_in(mine)) == {"team-a"}


def test_hiding_twice_hides_no_more() -> None:
    once = hide(explanation(THEIRS), "team-a".__eq__)
    assert hide(once, "nobody".__eq__) is once

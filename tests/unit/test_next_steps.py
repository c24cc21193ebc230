"""The next step of each reason: a sentence, and a command where one leads forward that the reader may give."""

from __future__ import annotations

import re
from typing import Any

import pytest

from queuer.cli.main import VERBS
from queuer.cli.queues import queue_app
from queuer.domain.reasons import ROWS, AdvisedJob, ChangeKind, JobChange, NextStep, Reader, Token, look_at

ANNOTATE = "kubectl annotate job train -n team-a --overwrite"
LABEL = "kubectl label job train -n team-a --overwrite"
AGAIN = "delete the job and create it again with"
PARAMS: list[tuple[Token, dict[str, Any], str, str | None]] = [
    (Token.MISCONFIGURED, {"queue": "root.x", "nearest": ["root.a", "root.b"]},
     "set label queuer.dev/queue to root.a", f"{LABEL} queuer.dev/queue=root.a"),
    (Token.PENDING_EVALUATION, {"retryAt": 900}, "wait: it is considered again from 1970-01-01 00:15:00 UTC", None),
    (Token.MISCONFIGURED, {"queue": "root.x", "nearest": []},
     "ask who administers root to let namespace team-a use a queue", None),
    (Token.MISCONFIGURED, {"queue": "root.a", "nearest": ["root.b"], "runs": True},
     "leave the job as it is and apply a tree in which root.a serves namespace team-a: "
     "the queue counts it from then on", None),
    (Token.MISCONFIGURED, {"queue": "root.a", "namespace": "team-a", "nearest": []},
     "ask who administers root.a to let namespace team-a use a queue", None),
    (Token.CONTROLLER_STALE, {"state": "away"},
     "tell who operates the cluster: nothing starts, as the API server does not answer", None),
    (Token.CONTROLLER_STALE, {"state": "unguarded"},
     "tell who operates the cluster: nothing starts, as the admission policies are missing or changed, "
     "or Queuer refuses the Kubernetes version", None),
    (Token.MISCONFIGURED, {"queue": "root.a", "user": "bob", "nearest": []},
     "ask who administers root.a to let bob use it", None),
    (Token.MISCONFIGURED, {"queue": "root.a", "maxRuntime": "2h"},
     "set annotation queuer.dev/max-runtime to 2h", f"{ANNOTATE} queuer.dev/max-runtime=2h"),
    (Token.WAITING_FOR_QUOTA, {"queue": "root.a", "user": "bob", "perUser": "maxRunning"},
     "wait until something that bob runs has ended", "queuer jobs -q root.a --state Running"),
    (Token.WAITING_FOR_QUOTA, {"queue": "root", "live": True}, "wait until others end: the cluster is full", None),
    (Token.WAITING_FOR_QUOTA, {"queue": "root.a"},
     "wait until others end; who administers root.a may raise the limit", "queuer queue show root.a"),
    (Token.MISCONFIGURED, {"queue": "root.a", "highest": 5, "nearest": ["normal"]},
     "set label queuer.dev/priority-class to normal", f"{LABEL} queuer.dev/priority-class=normal"),
    (Token.MISCONFIGURED, {"queue": "root.a", "highest": 5, "nearest": []},
     "ask who administers root.a to allow a PriorityClass", None),
    (Token.MISCONFIGURED, {"field": "topology-preferred", "level": "rak", "levels": ["rack"], "nearest": ["rack"]},
     "set annotation queuer.dev/topology-preferred to rack", f"{ANNOTATE} queuer.dev/topology-preferred=rack"),
    (Token.MISCONFIGURED, {"field": "topology-required", "level": "zone", "label": "x/zone"},
     "take annotation queuer.dev/topology-required off", f"{ANNOTATE} queuer.dev/topology-required-"),
    (Token.MISCONFIGURED, {"fields": ["annotation a/hold"], "values": {"annotation a/hold": "true"}},
     "set annotation a/hold to true", f"{ANNOTATE} a/hold=true"),
    (Token.MISCONFIGURED, {"fields": ["annotation a/hold"], "values": {"annotation a/hold": "a b"}},
     "set annotation a/hold to a b", f"{ANNOTATE} 'a/hold=a b'"),
    (Token.MISCONFIGURED, {"fields": ["annotation a/foo"]}, "mend annotation a/foo as the reason says", None),
    (Token.MISCONFIGURED, {"fields": ["annotation a/foo", "spec.parallelism"], "values": {"annotation a/foo": ""}},
     f"{AGAIN} what the reason names mended", None),
    (Token.MISCONFIGURED,
     {"fields": ["annotation a/foo", "label a/b"], "values": {"annotation a/foo": "", "label a/b": "c"}},
     "take annotation a/foo off, and set label a/b to c", f"{ANNOTATE} a/foo- && {LABEL} a/b=c"),
    (Token.MISCONFIGURED, {"queue": "root.x", "nearest": ["root.a"], "also": [{"level": "zone", "levels": ["rack"]}]},
     "set label queuer.dev/queue to root.a, and set annotation queuer.dev/topology-required to rack",
     f"{ANNOTATE} queuer.dev/topology-required=rack && {LABEL} queuer.dev/queue=root.a"),
    (Token.MISCONFIGURED, {"level": "zone", "levels": ["rack"], "also": [{"queue": "root.a", "user": "bob"}]},
     "set annotation queuer.dev/topology-required to rack; ask who administers root.a to let bob use it",
     f"{ANNOTATE} queuer.dev/topology-required=rack"),
    (Token.EXCEEDS_MAX_QUOTA, {"queue": "root.a", "resource": "gpu", "asks": "9", "limit": "8"},
     f"{AGAIN} at most 8 gpu, or ask who administers root.a for more", None),
    (Token.EXCEEDS_MAX_QUOTA, {"queue": "root", "resource": "gpu", "asks": "1", "limit": "0", "live": True},
     f"{AGAIN} no gpu", None),
    (Token.EXCEEDS_MAX_QUOTA, {"resource": "gpus", "asks": "9", "limit": "0", "live": True, "nearest": ["gpu"]},
     f"{AGAIN} gpu instead of gpus", None),
    (Token.TOPOLOGY_PLACEMENT_FAILED, {"unstartable": True, "count": 3, "level": "rack"},
     f"{AGAIN} fewer or smaller pods, or a wider topology level", None),
    (Token.TOPOLOGY_PLACEMENT_FAILED, {"unstartable": True, "count": 1, "largest": {"gpu": "8"}},
     f"{AGAIN} smaller pods", None),
    (Token.SUSPENDED, {"queue": "root.a", "closed": [{"queue": "root.a"}, {"queue": "root"}]},
     "wait, or ask who administers root.a and root to resume it", None),
    (Token.SUSPENDED, {"namespace": "team-a", "unmanagedSince": 0.0, "started": False},
     "ask who administers namespace team-a to label it queuer.dev/managed=true again", None),
    (Token.ON_HOLD, {}, "take annotation queuer.dev/hold off", f"{ANNOTATE} queuer.dev/hold-"),
    (Token.BEHIND_IN_QUEUE, {"name": "big", "namespace": "team-a"},
     "wait until the job before it has started", "queuer why big -n team-a"),
    (Token.BEHIND_IN_QUEUE, {"ownerQueue": "root.b"}, "wait", "queuer queue show root.b"),
    (Token.BEHIND_IN_QUEUE, {"ownerQueue": "root.b", "headUnstartable": True},
     "ask who administers root.b to change, hold or delete that job", None),
]  # fmt: skip
OTHER = {"queue": "root.b", "resource": "gpu", "amount": "8"}
NAMED = {**OTHER, "name": "big", "namespace": "team-b"}
ADMITS = [
    (JobChange(kind=ChangeKind.LEVEL), f"{ANNOTATE} queuer.dev/topology-required-"),
    (JobChange(kind=ChangeKind.LEVEL, level="block"), f"{ANNOTATE} queuer.dev/topology-required=block"),
    (JobChange(kind=ChangeKind.PREEMPTIBLE), f"{ANNOTATE} queuer.dev/preemptible=true"),
    (JobChange(kind=ChangeKind.END, job=OTHER), "wait until a job of root.b with 8 gpu ends"),
    (JobChange(kind=ChangeKind.END, job=NAMED), "queuer wait big -n team-b --for finished --timeout 24h"),
]
SMALLER = JobChange(kind=ChangeKind.COUNT, pod_set="main", count=2)
LAST = JobChange(kind=ChangeKind.COUNT, pod_set="main", count=1)


def told(token: Token, params: dict[str, Any], *changes: JobChange, **more: Any) -> NextStep:
    """The next step for a job with this reason."""
    return ROWS[token].next(job(params=params, changes=changes, **more))


def job(**fields: Any) -> AdvisedJob:
    return AdvisedJob(uid="u1", kind="Job", namespace="team-a", name="train", queue="root.a", **fields)


def registered() -> set[str]:
    """The commands of `queuer queue`."""
    commands = queue_app.registered_commands
    return {str(command.name or command.callback.__name__) for command in commands if command.callback}


def test_every_token_has_one() -> None:
    """A token without a row, or a row without a part, fails here."""
    assert ROWS.keys() == set(Token)
    assert all(row.meaning and row.advice and row.params for row in ROWS.values())
    assert all(told(token, {}).do for token in Token)


@pytest.mark.parametrize(("token", "params", "do", "command"), PARAMS)
def test_it_follows_from_the_figures(
    token: Token, params: dict[str, Any], do: str, command: str | None
) -> None:
    assert told(token, params) == NextStep(do=do, command=command)


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ({"main": (9, {"gpu": 8})}, "at most 5 pods of 8 gpu"),
        ({"main": (1, {"gpu": 64, "cpu": 4000})}, "pods of at most 40 gpu"),
        ({"a": (1, {"gpu": 8}), "b": (9, {"gpu": 8}), "c": (2, {"cpu": 1})}, "at most 4 pods of 8 gpu in b"),
        ({"a": (9, {"gpu": 8}), "b": (9, {"gpu": 8})}, "at most 40 gpu"),
        ({"main": (9, {"cpu": 8000})}, "at most 40 gpu"),
    ],
)
def test_a_job_that_is_too_large_is_told_the_pods_that_would_fit(
    pods: dict[str, tuple[int, dict[str, int]]], said: str
) -> None:
    params = {"queue": "root.a", "resource": "gpu", "limit": "40"}
    step = told(Token.EXCEEDS_MAX_QUOTA, params, pods=pods)
    assert step.do == f"{AGAIN} {said}, or ask who administers root.a for more"


def test_no_pod_is_told_to_be_larger_than_a_node() -> None:
    """On 160 nodes of 8, a pod of 2,000 was told to ask for 1,280; one of 16 in a gang of 100, for 80 such pods."""
    params = {"resource": "gpu", "limit": "1280", "live": True, "largest": {"gpu": "8"}}
    for count, per in ((1, 2000), (100, 16)):
        step = told(Token.EXCEEDS_MAX_QUOTA, params, pods={"main": (count, {"gpu": per})})
        assert step.do == f"{AGAIN} pods of at most 8 gpu"


@pytest.mark.parametrize(("change", "said"), ADMITS)
@pytest.mark.parametrize("token", [Token.TOPOLOGY_PLACEMENT_FAILED, Token.WAITING_FOR_QUOTA])
def test_what_was_tried_and_worked_comes_first(token: Token, change: JobChange, said: str) -> None:
    step = told(token, {}, change, LAST)
    assert said == (step.command or step.do)


@pytest.mark.parametrize(("shrinks", "updates"), [(True, True), (True, False), (False, True)])
def test_a_job_that_can_run_smaller_is_told_how_where_its_kind_can(shrinks: bool, updates: bool) -> None:
    step = told(Token.TOPOLOGY_PLACEMENT_FAILED, {}, SMALLER, shrinks=shrinks, reader=Reader(updates=updates))
    may = shrinks and updates
    how = ", or set annotation queuer.dev/min-count.main to 2:" if may else ";"
    assert step.do == f"wait{how} with at most 2 pods in main it would start now"
    assert step.command == (f"{ANNOTATE} queuer.dev/min-count.main=2" if may else None)


def test_commands_are_ones_that_there_are() -> None:
    """`kubectl edit` is none: what it would have to change cannot be changed."""
    steps = [told(token, params) for token, params, *_ in PARAMS] + [told(token, {}) for token in Token]
    texts = [step.command for step in steps if step.command is not None]
    assert not any("kubectl edit" in text for text in texts)
    verbs = {verb for text in texts for verb in re.findall(r"queuer ((?:queue )?[a-z]+)", text)}
    assert {verb.removeprefix("queue ") for verb in verbs if " " in verb} <= registered()
    assert {verb for verb in verbs if " " not in verb} <= VERBS.keys()
    assert verbs


def test_nobody_is_offered_what_is_refused() -> None:
    """Who may not change the job, or its queue, is told whom to ask."""
    for token, params, *_ in PARAMS:
        command = told(token, params, reader=Reader(updates=False)).command or ""
        assert not command.startswith(("kubectl annotate", "kubectl label")), token
    assert told(Token.ON_HOLD, {}, reader=Reader(updates=False)).do == (
        "ask who owns team-a/train to take annotation queuer.dev/hold off"
    )
    closed = {"closed": [{"queue": "root.a"}]}
    assert told(Token.SUSPENDED, closed, reader=Reader(administers={"root"})).command is None
    assert (
        told(Token.SUSPENDED, closed, reader=Reader(administers={"root.a"})).command
        == "queuer queue resume root.a -y"
    )


def test_several_pods_have_no_object_of_their_name() -> None:
    fields = {"fields": ["label a/b"], "values": {"label a/b": "c"}}
    step = told(Token.MISCONFIGURED, fields, group=True)
    assert (step.do, step.command) == ("set label a/b to c", None)


@pytest.mark.parametrize("runs", [True, False])
def test_who_waits_for_nothing_is_looked_at(runs: bool) -> None:
    said = look_at(job(), runs=runs).command or ""
    assert said.startswith("kubectl ")
    assert ("queuer.dev/workload=u1" in said) is runs


def test_a_deleted_job_sends_nobody_to_a_namesake() -> None:
    assert look_at(job(deleted=True), runs=False).command == "queuer events job/train -n team-a"


def test_a_hold_by_command_is_taken_back_by_command() -> None:
    """The job's own annotation would not help: a command beats it."""
    assert told(Token.ON_HOLD, {}, commanded=True).command == "queuer release job/train -n team-a -y"
    assert told(Token.ON_HOLD, {}, commanded=True, reader=Reader(updates=False)).command is None

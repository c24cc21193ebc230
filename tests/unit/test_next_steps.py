"""A reader can do every offered next step: nothing immutable is edited, and every command exists."""

from __future__ import annotations

import re
from typing import Any

import pytest

from queuer.cli.main import VERBS
from queuer.cli.queues import queue_app
from queuer.domain.reasons import ROWS, AdvisedJob, ChangeKind, JobChange, Token, look_at

PARAMS: list[tuple[Token, dict[str, Any], str]] = [
    (Token.MISCONFIGURED, {"queue": "root.x", "nearest": ["root.a", "root.b"]},
     "kubectl label job train -n team-a --overwrite queuer.dev/queue=root.a"),
    (Token.MISCONFIGURED, {"queue": "root.x", "nearest": []},
     "ask who administers root to let namespace team-a use a queue"),
    (Token.MISCONFIGURED, {"queue": "root.a", "nearest": ["root.b"], "runs": True},
     "nothing has to be done to the job; apply the tree in which root.a serves namespace team-a: "
     "queuer apply -f TREE; the queue counts it from then on"),
    (Token.MISCONFIGURED, {"queue": "root.a", "namespace": "team-a", "nearest": []},
     "ask who administers root.a to let namespace team-a use a queue"),
    (Token.MISCONFIGURED, {"queue": "root.a", "draining": "root", "nearest": []},
     "wait until root is open again; who administers it can say when"),
    (Token.CONTROLLER_STALE, {"state": "away"},
     "nothing starts: show it to who operates the cluster, whose API server does not answer"),
    (Token.CONTROLLER_STALE, {"state": "unguarded"},
     "nothing starts: show it to who operates the cluster, whose admission policies are missing or changed, "
     "or whose Kubernetes version Queuer refuses"),
    (Token.MISCONFIGURED, {"queue": "root.a", "user": "bob", "nearest": []},
     "ask who administers root.a to let bob use it"),
    (Token.MISCONFIGURED, {"queue": "root.a", "user": "bob", "nearest": ["root.b"]},
     "kubectl label job train -n team-a --overwrite queuer.dev/queue=root.b"),
    (Token.MISCONFIGURED, {"queue": "root.a", "maxRuntime": "2h"},
     "kubectl annotate job train -n team-a --overwrite queuer.dev/max-runtime=2h"),
    (Token.WAITING_FOR_QUOTA, {"queue": "root.a", "user": "bob", "perUser": "maxRunning"},
     "wait; what bob runs has to end first: queuer jobs -q root.a"),
    (Token.MISCONFIGURED, {"queue": "root.a", "highest": 5, "nearest": ["normal"]},
     "kubectl label job train -n team-a --overwrite queuer.dev/priority-class=normal"),
    (Token.MISCONFIGURED, {"field": "topology-preferred", "level": "rak", "levels": ["rack"], "nearest": ["rack"]},
     "kubectl annotate job train -n team-a --overwrite queuer.dev/topology-preferred=rack"),
    (Token.MISCONFIGURED, {"field": "topology-required", "level": "zone", "label": "x/zone"},
     "kubectl annotate job train -n team-a queuer.dev/topology-required-"),
    (Token.MISCONFIGURED, {"fields": ["annotation queuer.dev/hold"]},
     "kubectl annotate job train -n team-a --overwrite queuer.dev/hold=VALUE"),
    (Token.MISCONFIGURED, {"fields": ["annotation queuer.dev/foo", "annotation queuer.dev/hold"]},
     "kubectl annotate job train -n team-a --overwrite queuer.dev/foo- queuer.dev/hold=VALUE"),
    (Token.MISCONFIGURED, {"fields": ["annotation queuer.dev/hold", "spec.parallelism"], "queue": "root.x"},
     "kubectl delete job train -n team-a, then create it again with what the reason names mended"),
    (Token.MISCONFIGURED, {"fields": ["annotation queuer.dev/hold", "label queuer.dev/priority-class"]},
     "kubectl annotate job train -n team-a --overwrite queuer.dev/hold=VALUE && "
     "kubectl label job train -n team-a --overwrite queuer.dev/priority-class=VALUE"),
    (Token.MISCONFIGURED, {"queue": "root.x", "nearest": ["root.a"], "also": [{"level": "zone", "levels": ["rack"]}]},
     "kubectl label job train -n team-a --overwrite queuer.dev/queue=root.a && "
     "kubectl annotate job train -n team-a --overwrite queuer.dev/topology-required=rack"),
    (Token.MISCONFIGURED, {"level": "zone", "levels": ["rack"], "also": [{"fields": ["spec.parallelism"]}]},
     "kubectl delete job train -n team-a, then create it again with what the reason names mended"),
    (Token.EXCEEDS_MAX_QUOTA, {"queue": "root.a", "resource": "gpu", "asks": "9", "limit": "8"},
     "kubectl delete job train -n team-a, then create it again with at most 8 gpu; or ask who administers root.a"),
    (Token.EXCEEDS_MAX_QUOTA, {"queue": "root", "resource": "gpu", "asks": "1", "limit": "0", "live": True},
     "kubectl delete job train -n team-a, then create it again with no gpu"),
    (Token.EXCEEDS_MAX_QUOTA, {"queue": "root", "resource": "gpu", "asks": "9", "limit": "8", "live": True},
     "kubectl delete job train -n team-a, then create it again with at most 8 gpu"),
    (Token.TOPOLOGY_PLACEMENT_FAILED, {"unstartable": True},
     "kubectl delete job train -n team-a, then create it again with fewer or smaller pods, or a wider topology level"),
    (Token.SUSPENDED, {"queue": "root.a", "closed": ["root.a", "root"]},
     "queuer queue resume root.a && queuer queue resume root   (by who administers it)"),
    (Token.ON_HOLD, {}, "kubectl annotate job train -n team-a queuer.dev/hold-"),
    (Token.BEHIND_IN_QUEUE, {"name": "big", "namespace": "team-a"},
     "wait; queuer why big -n team-a says what that waits for"),
    (Token.BEHIND_IN_QUEUE, {"ownerQueue": "root.b"}, "wait; queuer queue show root.b"),
    (Token.BEHIND_IN_QUEUE, {"ownerQueue": "root.b", "headUnstartable": True},
     "ask who administers root.b about the job before it"),
]  # fmt: skip
ENDS = {"queue": "root.b", "resource": "gpu", "amount": "8"}
ADMITS = [
    (JobChange(kind=ChangeKind.LEVEL), "kubectl annotate job train -n team-a queuer.dev/topology-required-"),
    (JobChange(kind=ChangeKind.LEVEL, level="block"),
     "kubectl annotate job train -n team-a --overwrite queuer.dev/topology-required=block"),
    (JobChange(kind=ChangeKind.PREEMPTIBLE),
     "kubectl annotate job train -n team-a --overwrite queuer.dev/preemptible=true"),
    (JobChange(kind=ChangeKind.COUNT, pod_set="main", count=2), "wait; with main.count<=2 it would start now"),
    (JobChange(kind=ChangeKind.END, job=ENDS), "wait until a job of root.b with 8 gpu ends"),
]  # fmt: skip
LAST = JobChange(kind=ChangeKind.COUNT, pod_set="main", count=1)


def told(token: Token, params: dict[str, Any], *changes: JobChange) -> str:
    """The next step for a job with this reason."""
    return ROWS[token].next(job(params=params, changes=changes))


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
    assert all(told(token, {}) for token in Token)


@pytest.mark.parametrize(("token", "params", "said"), PARAMS)
def test_it_follows_from_the_figures(token: Token, params: dict[str, Any], said: str) -> None:
    assert told(token, params) == said


@pytest.mark.parametrize(("change", "said"), ADMITS)
@pytest.mark.parametrize("token", [Token.TOPOLOGY_PLACEMENT_FAILED, Token.WAITING_FOR_QUOTA])
def test_what_was_tried_and_worked_comes_first(token: Token, change: JobChange, said: str) -> None:
    assert told(token, {}, change, LAST) == said


def test_commands_are_ones_that_there_are() -> None:
    """`kubectl edit` is none: what it would have to change cannot be changed."""
    texts = [told(token, params) for token, params, _ in PARAMS] + [told(token, {}) for token in Token]
    assert not any("kubectl edit" in text for text in texts)
    verbs = {verb for text in texts for verb in re.findall(r"queuer ((?:queue )?[a-z]+)", text)}
    assert {verb.removeprefix("queue ") for verb in verbs if " " in verb} <= registered()
    assert {verb for verb in verbs if " " not in verb} <= VERBS.keys()
    assert verbs


@pytest.mark.parametrize("runs", [True, False])
def test_who_waits_for_nothing_is_looked_at(runs: bool) -> None:
    said = look_at(job(), runs=runs)
    assert said.startswith("kubectl ")
    assert ("queuer.dev/workload=u1" in said) is runs


def test_a_hold_by_command_is_taken_back_by_command() -> None:
    """The job's own annotation would not help: a command beats it."""
    assert ROWS[Token.ON_HOLD].next(job(commanded=True)) == "queuer release job/train -n team-a"

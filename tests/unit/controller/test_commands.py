"""Each command's effect on a workload: the right to it, what counts from then on, and the weight of the job's
own words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.commands.take_up import carry_out
from queuer.controller.intake.read import take_in
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts, job_view
from queuer.domain.queue import Access, Queue, QueueTree, QuotaRow
from queuer.domain.reasons import Token
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.kinds import JOB
from queuer.kube.objects import Meta, PriorityClass
from queuer.store.commands import Command
from queuer.store.tables import CommandOutcome, CommandVerb
from tests.unit.make import placed, sure

QUEUE = "root.a"
CLASSES = {"low": 10, "high": 1000, "top": 5000, "system-node-critical": 2_000_001_000}


def command(verb: CommandVerb, **fields: Any) -> Command:
    """An administrator's, unless told otherwise."""
    given = {
        "id": 7, "at": 0.0, "due": 0.0, "actor": "root", "source": "api", "uid": "j", "reason": "maintenance",
        "administers": QUEUE, "arguments": {}, "done_at": None, "outcome": None, "message": None,
    }  # fmt: skip
    return Command(verb=verb, **{**given, **fields})


class Desk:
    """One job `j` of priority 10 in a queue that allows up to `high`, and commands on it."""

    def __init__(self, *, hold: bool = False) -> None:
        self.state = ClusterState()
        queue = Queue(path=QUEUE, namespaces=("ns",), access=Access(max_priority="high"))
        self.state.configure(Rules(tree=QueueTree.of([queue]), revision=1))
        classes = {
            name: PriorityClass(metadata=Meta(name=name), value=value) for name, value in CLASSES.items()
        }
        self.jobs = ClusterJobs(None, self.state, Facts(priority_classes=classes))  # type: ignore[arg-type]
        self.says(hold=hold)
        self.round()

    def says(self, *, hold: bool = False) -> None:
        """The job is created, or edited by its owner."""
        found: dict[str, Any] = {
            "metadata": {
                "name": "j", "namespace": "ns", "uid": "j",
                "labels": {"queuer.dev/queue": QUEUE, "queuer.dev/priority-class": "low"},
                "annotations": {"queuer.dev/hold": "true"} if hold else {},
            },
            "spec": {"suspend": True, "template": {"spec": {"containers": [{"name": "main"}]}}},
        }  # fmt: skip
        self.state.job_changed(job_view(JOB, msgspec.convert(found, JOB.type)))

    def runs(self) -> None:
        """It was admitted and runs."""
        placement = placed({"n1": 1}, id="a1")
        self.state.put(replace(self.live, state=State.RUNNING, placement=placement, explanation=None))

    @property
    def live(self) -> Live:
        """The workload."""
        return self.state.live["j"]

    def round(self, *asked: Command) -> Round:
        """A round that carries these out and reads what changed; memory follows as after its commit."""
        changes = Round(self.state.live, now=100.0)
        changed = carry_out(changes, asked, state=self.state, jobs=self.jobs)
        take_in(changes, [*changed, *self.state.take_unread(9)], state=self.state, jobs=self.jobs)
        assert not changes.failed
        for change in changes.values():
            if change.after is not None:
                self.state.put(change.after)
        return changes

    def does(self, verb: CommandVerb, *, admin: bool = False, by: str = "alice", **arguments: Any) -> str:
        """Carry out one command; its outcome and sentence."""
        asked = command(verb, actor=by, administers=QUEUE if admin else None, arguments=arguments)
        [told] = self.round(asked)["j"].answers
        return f"{told.outcome}: {told.message}"


def test_a_hold_keeps_it_back_and_says_by_whom_until_it_is_released() -> None:
    desk = Desk()
    assert desk.does(CommandVerb.HOLD) == "done: held"
    assert desk.live.state is State.HELD
    why = sure(desk.live.explanation)
    assert why.primary.token is Token.ON_HOLD
    assert why.primary.text.startswith("held by alice: maintenance")
    assert desk.does(CommandVerb.RELEASE) == "done: released"
    assert (desk.live.state, desk.live.override) == (State.QUEUED, None)
    assert desk.does(CommandVerb.RELEASE) == "done: it was not on hold"


def _state(desk: Desk) -> State:
    return desk.live.state


def test_what_the_job_says_afterwards_does_not_beat_the_override() -> None:
    desk = Desk(hold=True)
    assert _state(desk) is State.HELD
    desk.does(CommandVerb.RELEASE)
    assert _state(desk) is State.QUEUED, "a release beats the job's own hold"
    desk.says(hold=True)
    desk.round()
    assert _state(desk) is State.QUEUED
    desk.does(CommandVerb.HOLD)
    desk.says(hold=False)
    desk.round()
    assert _state(desk) is State.HELD, "taking off the annotation does not end a hold over REST"
    job = desk.state.jobs["j"]
    assert desk.jobs.as_decided(job), "it asks for what memory holds of it"


def test_a_hold_of_what_runs_counts_when_it_is_back_in_its_queue() -> None:
    desk = Desk()
    desk.runs()
    assert "once it is back" in desk.does(CommandVerb.HOLD)
    assert _state(desk) is State.RUNNING
    desk.state.put(replace(desk.live, state=State.QUEUED, placement=None, attempt=2))
    desk.state.read_again(["j"])
    desk.round()
    assert _state(desk) is State.HELD


def test_another_priority_lets_it_displace_whom_it_once_made_room_for() -> None:
    """It went for that job by priorities that do not hold any more."""
    desk = Desk()
    desk.state.put(replace(desk.live, displaced_by=frozenset({"other"})))
    desk.does(CommandVerb.HOLD)
    desk.does(CommandVerb.RELEASE)
    desk.does(CommandVerb.PRIORITISE, admin=True, priority=desk.live.workload.priority)
    assert desk.live.displaced_by == {"other"}
    desk.does(CommandVerb.PRIORITISE, admin=True, priority=500)
    assert (desk.live.displaced_by, desk.live.workload.priority) == (frozenset(), 500)


@pytest.mark.parametrize("hold", [False, True])
def test_an_eviction_sends_the_gang_back_and_gives_room_for_a_while_or_holds(hold: bool) -> None:
    desk = Desk()
    desk.runs()
    desk.state.put(replace(desk.live, workload=replace(desk.live.workload, preemptible=False)))
    evict = command(CommandVerb.EVICT, arguments={"hold": hold})
    change = desk.round(evict)["j"]
    [told] = change.answers
    assert (change.evicts, change.cause, change.beneficiary) == (True, "command", None)
    assert change.note == "evicted by root: maintenance"
    assert told.outcome is CommandOutcome.DONE
    assert _state(desk) is State.EVICTING
    assert sure(desk.live.placement).unconfirmed
    assert (desk.live.rest, desk.live.override is not None) == ((None, True) if hold else (160.0, False))
    [again] = desk.round(evict)["j"].answers
    assert (again.outcome, again.message) == (CommandOutcome.REFUSED, "it is on its way out")


def test_a_job_that_could_not_run_again_is_not_evicted() -> None:
    desk = Desk()
    desk.runs()
    desk.state.job_changed(replace(desk.state.jobs["j"], restarts=False))
    said = desk.does(CommandVerb.EVICT, admin=True)
    assert "Kubernetes would call it Complete" in said
    assert "`kubectl delete job j -n ns` ends it" in said
    assert _state(desk) is State.RUNNING


def test_pods_that_outlive_their_job_are_told_to_go() -> None:
    """A job that has ended and whose pods go by themselves is not evicted."""
    desk = Desk()
    desk.runs()
    desk.state.put(replace(desk.live, state=State.SUCCEEDED))
    for stays, outcome in (
        (False, CommandOutcome.GONE),
        (True, CommandOutcome.DONE),
        (True, CommandOutcome.GONE),
    ):
        seen = replace(desk.state.jobs["j"], outcome=State.SUCCEEDED, lingers=stays)
        desk.state.job_changed(seen)
        change = desk.round(command(CommandVerb.EVICT))["j"]
        assert [told.outcome for told in change.answers] == [outcome]
        assert change.evicts is (outcome is CommandOutcome.DONE)
        assert (_state(desk), desk.live.rest) == (State.SUCCEEDED, None)


def test_only_who_administers_the_queue_evicts_raises_and_changes_what_an_administrator_set() -> None:
    desk = Desk()
    desk.runs()
    assert desk.does(CommandVerb.EVICT).startswith("refused: only who administers root.a")
    assert desk.does(CommandVerb.PRIORITISE, priority=11).startswith("refused: 11 is above the job's own 10")
    assert desk.does(CommandVerb.PRIORITISE, priority="high").startswith("refused: 1000 is above")
    assert desk.does(CommandVerb.PRIORITISE, priority=5) == "done: priority 10 -> 5"
    assert desk.does(CommandVerb.PRIORITISE, priority=10) == "done: priority 5 -> 10"
    assert desk.does(CommandVerb.HOLD, admin=True, by="root").startswith("done")
    assert desk.does(CommandVerb.RELEASE).startswith("refused: root has overridden this job")
    assert desk.does(CommandVerb.HOLD).startswith("refused: root has overridden this job")
    assert desk.does(CommandVerb.PRIORITISE, priority=5) == "done: priority 10 -> 5", (
        "that is its owner's still"
    )
    assert desk.does(CommandVerb.RELEASE, admin=True, by="other") == "done: released"


def test_an_administrators_priority_leaves_the_owners_hold_to_the_owner() -> None:
    desk = Desk()
    assert desk.does(CommandVerb.HOLD) == "done: held"
    assert desk.does(CommandVerb.PRIORITISE, admin=True, by="root", priority=5) == "done: priority 10 -> 5"
    assert sure(desk.live.explanation).primary.text.startswith("held by alice: maintenance")
    assert desk.does(CommandVerb.PRIORITISE, priority=6).startswith("refused: root has overridden")
    assert desk.does(CommandVerb.RELEASE) == "done: released"
    assert (_state(desk), desk.live.workload.priority) == (State.QUEUED, 5)


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
def test_a_priority_counts_at_once_and_is_given_back(state: State) -> None:
    desk = Desk()
    if state is State.RUNNING:
        desk.runs()
    assert desk.does(CommandVerb.PRIORITISE, admin=True, priority="high") == "done: priority 10 -> 1000"
    assert (desk.live.workload.priority, desk.live.state) == (1000, state)
    assert desk.does(CommandVerb.PRIORITISE, admin=True, priority=None).endswith(
        "1000 -> 10, as the job says"
    )
    assert (desk.live.workload.priority, desk.live.override) == (10, None)


@pytest.mark.parametrize(
    ("priority", "said"),
    [
        ("top", "5000 is above 1000, the most that queue root.a allows"),
        (1001, "1001 is above 1000"),
        ("hihg", "did you mean high"),
        ("system-node-critical", "no PriorityClass system-node-critical orders jobs"),
    ],
)
def test_a_priority_that_the_queue_does_not_allow_is_refused_with_the_bound(
    priority: int | str, said: str
) -> None:
    desk = Desk()
    answer = desk.does(CommandVerb.PRIORITISE, admin=True, priority=priority)
    assert answer.startswith("refused")
    assert said in answer
    assert desk.live.override is None


def test_what_ended_is_gone_and_what_was_not_taken_up_in_time_is_not_done() -> None:
    desk = Desk()
    [told] = desk.round(command(CommandVerb.HOLD, expired=True))["j"].answers
    assert told.outcome is CommandOutcome.REFUSED
    assert told.message == "no controller took it up within 10 minutes"
    assert desk.live.override is None
    desk.state.drop("j")
    desk.state.job_gone("j")
    assert desk.does(CommandVerb.HOLD) == "gone: the job has ended or is gone"


@pytest.mark.parametrize(("limit", "gone"), [(2, 0), (1, 1), (0, 2)])
def test_a_cut_evicts_while_its_limit_is_exceeded_and_not_before_its_tree_is_known(
    limit: int, gone: int
) -> None:
    desk = Desk()
    desk.runs()
    own = desk.live.workload
    sets = (replace(own.pod_sets[0], requests={"gpu": 1}),)
    for uid in ("j", "k"):
        workload = replace(own, uid=uid, name=uid, pod_sets=sets)
        desk.state.put(replace(desk.live, workload=workload))
        desk.state.jobs[uid] = replace(desk.state.jobs["j"], uid=uid)
    cut = command(CommandVerb.EVICT, arguments={"revision": 2})
    asked = [replace(cut, id=n, uid=uid) for n, uid in enumerate("jk")]
    assert desk.round(*asked) == {}, "the tree of revision 2 is not in memory yet"
    rows = (QuotaRow(resource="gpu", limit=limit),)
    queue = Queue(path=QUEUE, namespaces=("ns",), quota=rows)
    desk.state.configure(Rules(tree=QueueTree.of([queue]), revision=2))
    changes = desk.round(*asked)
    assert [uid for uid, change in changes.items() if change.evicts] == ["j", "k"][:gone]
    refused = [
        row.message for uid in "jk" for row in changes[uid].answers if row.outcome is CommandOutcome.REFUSED
    ]
    assert refused == ["it stays: the limits hold without its eviction"] * (2 - gone)


def test_a_quarantined_job_is_commanded_when_it_is_tried_again() -> None:
    desk = Desk()
    desk.state.quarantine_one("j", ValueError("odd"), now=100.0)
    assert desk.round(command(CommandVerb.HOLD)) == {}

"""An admission that was taken back gives all back, whatever else is heard of the job in that moment. One that was
refused for a while and went through is told as refused no more.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from queuer.controller.landing.confirm import Confirmer
from queuer.controller.landing.writes import settle_touched, take_results, tells_refusal
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.workload import State
from queuer.store.outbox import Result
from queuer.store.tables import EntryKind, EntryOutcome
from tests.unit.controller.test_loop import Decider, looping
from tests.unit.landed import LIMITS
from tests.unit.make import entry_of, gang, job_view, placed, sure

NOBODY = cast(Any, None)


def look(changes: Round, state: ClusterState) -> None:
    """Follow what was heard of the job."""
    confirmer = Confirmer(NOBODY, state, lost_after=300.0, clock=lambda: 1.0)
    settle_touched(changes, ["u"], state=state, jobs=NOBODY, confirmer=confirmer, limits=LIMITS)


def test_a_job_that_ends_as_its_admission_is_taken_back_holds_nothing() -> None:
    """A job that was started beside the queue may end before we could mark it. The step that ends it must not hide
    the one that returns its charge.
    """
    state = ClusterState()
    state.put(Live(workload=gang(), state=State.ADMITTED, placement=placed({"n1": 1})))
    state.job_changed(job_view(resource_version="2", suspended=False, outcome=State.SUCCEEDED))
    changes = Round(state.live, now=1.0)
    taken = Result(entry=entry_of(kind=EntryKind.WITHDRAW), outcome=EntryOutcome.APPLIED)
    take_results(changes, [taken], state=state, jobs=NOBODY, limits=LIMITS)
    look(changes, state)
    step = sure(changes["u"].transition(at=1.0))
    assert (step.before, step.after) == (State.ADMITTED, State.SUCCEEDED)
    assert changes["u"].ends


def test_a_job_that_goes_after_it_has_ended_is_noted_as_gone() -> None:
    """Else lists without `deleted` show it until retention takes it."""
    state = ClusterState()
    state.job_changed(job_view(resource_version="2", suspended=False, outcome=State.SUCCEEDED))
    gone = []
    for leaves in (False, True):
        if leaves:
            state.job_gone("u")
        changes = Round(state.live, now=1.0)
        look(changes, state)
        gone.append([uid for uid, change in changes.items() if change.gone])
    assert gone == [[], ["u"]]


@pytest.mark.parametrize(
    ("kind", "state", "runs"),
    [
        (EntryKind.ADMIT, State.ADMITTED, State.PLACING),
        (EntryKind.ADMIT, State.RUNNING, State.RUNNING),
        (EntryKind.EVICT, State.EVICTING, State.EVICTING),
    ],
)
async def test_a_write_that_goes_through_at_last_is_told_as_refused_no_more(
    kind: EntryKind, state: State, runs: State
) -> None:
    """Else a job that runs says until its end that the API server refuses to start it."""
    entry, loop = entry_of("a", kind), looping(Decider())
    memory = loop.term.state
    memory.put(Live(workload=gang("a"), state=state, placement=placed({"n1": 1}), landed=5.0))
    loop._refused(entry, "no job starts on Fridays", 31.0)
    assert tells_refusal(memory.live["a"])
    changes, taken = Round(memory.live, now=100.0), [Result(entry=entry, outcome=EntryOutcome.APPLIED)]
    take_results(changes, taken, state=memory, jobs=NOBODY, limits=LIMITS)
    changes.tell(memory.take_untold(9))
    change = changes["a"]
    after = sure(change.after)
    assert (after.state, after.explanation) == (runs, None)
    assert (change.unexplains, change.reason) == (True, None)

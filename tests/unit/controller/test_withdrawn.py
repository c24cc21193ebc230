"""An admission that was taken back gives all back, whatever else is heard of the job in that moment."""

from __future__ import annotations

from typing import Any, cast

from queuer.controller.landing.confirm import Confirmer
from queuer.controller.landing.writes import settle_touched, take_results
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.workload import State
from queuer.store.outbox import Entry, Result
from queuer.store.tables import EntryKind, EntryOutcome
from tests.unit.landed import LIMITS
from tests.unit.make import gang, job_view, placed

NOBODY = cast(Any, None)


def test_a_job_that_ends_as_its_admission_is_taken_back_holds_nothing() -> None:
    """A job that was started beside the queue may end before we could mark it. The step that ends it must not hide
    the one that returns its charge.
    """
    state = ClusterState()
    state.put(Live(workload=gang(), state=State.ADMITTED, placement=placed({"n1": 1})))
    state.job_changed(job_view(resource_version="2", suspended=False, outcome=State.SUCCEEDED))
    entry = Entry(
        seq=1, kind=EntryKind.WITHDRAW, uid="u", admission_id="adm", epoch=1, cycle=None, at=0.0, patch={}
    )
    changes, taken = Round(state.live, now=1.0), [Result(entry=entry, outcome=EntryOutcome.APPLIED)]
    take_results(changes, taken, state=state, jobs=NOBODY, limits=LIMITS)
    confirmer = Confirmer(NOBODY, state, lost_after=300.0, clock=lambda: 1.0)
    settle_touched(changes, ["u"], state=state, jobs=NOBODY, confirmer=confirmer, limits=LIMITS)
    step = changes["u"].transition(at=1.0)
    assert step is not None
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
        confirmer = Confirmer(NOBODY, state, lost_after=300.0, clock=lambda: 1.0)
        settle_touched(
            changes, state.take_touched(10), state=state, jobs=NOBODY, confirmer=confirmer, limits=LIMITS
        )
        gone.append([uid for uid, change in changes.items() if change.gone])
    assert gone == [[], ["u"]]

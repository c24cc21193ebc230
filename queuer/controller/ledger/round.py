"""A round of the loop: a `Change` for each workload that it touches, gathered first and committed at once.

A change says how a workload was and how it is afterwards. The writes follow from the two: the step, the charge, the
override, the reason. Plans, jobs, pods, PATCHes and commands all put their part into the same change. A workload is
left out of a round by `del round[uid]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from queuer.controller.memory.live import Live
from queuer.domain.assignments import Bond, Reservation
from queuer.domain.reasons import Explanation
from queuer.domain.workload import State, demand_of
from queuer.store.commands import CommandAnswer
from queuer.store.cycles import CycleRecord
from queuer.store.ledger import LedgerRow
from queuer.store.outbox import Effect, Result
from queuer.store.tables import EntryKind
from queuer.store.transitions import NewAdmission, Transition
from queuer.store.workloads import Setback


class Isolated(Exception):
    """These workloads could not be handled, each with why. Nothing was done for anybody."""

    def __init__(self, found: Mapping[str, Exception]) -> None:
        super().__init__(", ".join(found))
        self.found = found


@contextmanager
def isolate(uid: str) -> Iterator[None]:
    """Raise what fails inside as Isolated: it is the fault of this workload alone."""
    try:
        yield
    except Exception as error:
        raise Isolated({uid: error}) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The part of a round about one workload. `before`: as memory and the database have it, None = unknown. `after`:
    as it is once the round is committed, None = memory has nothing of it.

    `reread`: its row is written from its job; `gone`: its job object is no more. `results`: how PATCHes ended;
    `effects`: PATCHes to send. `cause`, `beneficiary`, `note`: why and for whom it goes, the note for its owner.
    `hosts`: its pods by pod set and node, once all run. `charges`, `domains`, `hit`: see `NewAdmission`. `answers`: how
    commands ended. `told`: a reason to write that memory has already; `later`: a later round writes the new reason.
    `ran`: seconds of a run that ended by itself. `lost`: a sentence about pods that a running gang misses from now on.
    """

    uid: str
    before: Live | None
    after: Live | None
    reread: bool = False
    gone: bool = False
    results: tuple[Result, ...] = ()
    effects: tuple[Effect, ...] = ()
    cause: str = ""
    beneficiary: str | None = None
    note: str = ""
    hosts: Mapping[str, Mapping[str, int]] | None = None
    charges: tuple[LedgerRow, ...] = ()
    domains: tuple[str, ...] = ()
    hit: bool | None = None
    answers: tuple[CommandAnswer, ...] = ()
    told: Explanation | None = None
    later: bool = False
    ran: float | None = None
    lost: str = ""

    @property
    def admits(self) -> bool:
        """Whether it starts, or is charged as it runs already."""
        before, after = self.before, self.after
        return before is not None and after is not None and after.charged and not before.charged

    @property
    def evicts(self) -> bool:
        """Whether an eviction begins: a PATCH suspends the job."""
        return any(effect.kind is EntryKind.EVICT for effect in self.effects)

    @property
    def leaves(self) -> bool:
        """Whether it goes back to its queue from now on, by an eviction or by somebody's hand."""
        return self._steps and self.after is not None and self.after.state is State.EVICTING

    @property
    def ends(self) -> bool:
        """Whether memory forgets it, and nothing stays charged to it."""
        return self.after is not None and self.after.is_over

    @property
    def returns(self) -> bool:
        """Whether it is back in its queue."""
        return self._steps and self.after is not None and self.after.state.waiting

    @property
    def _finishes(self) -> bool:
        """Whether the job says that it has ended."""
        return self.after is not None and self.after.state.ended and not self.gone

    @property
    def _steps(self) -> bool:
        """Whether its state changes, other than by a hold: that is written with its job."""
        before, after = self.before, self.after
        if before is None or after is None or before.state is after.state:
            return False
        return not (before.state.waiting and after.state.waiting)

    def transition(self, *, at: float) -> Transition | None:
        """The step to write; None where there is none, or where an admission is written."""
        if not self._steps or self.admits:
            return None
        assert self.before is not None
        assert self.after is not None
        return Transition(
            uid=self.uid, before=self.before.state, attempt=self.before.attempt, after=self.after.state, at=at,
            cause=self.cause, beneficiary=self.beneficiary, note=self.note if self.evicts or self._finishes else "",
            hosts=self.hosts,
        )  # fmt: skip

    @property
    def admission(self) -> NewAdmission | None:
        """The admission to write, if it starts."""
        if not self.admits:
            return None
        before, after = self.before, self.after
        assert before is not None
        assert after is not None
        assert after.placement is not None
        return NewAdmission(
            id=after.placement.id, uid=self.uid, attempt=before.attempt, before=before.state,
            assignments=after.placement.assignments, charges=self.charges, domains=self.domains,
            hit=self.hit,
        )  # fmt: skip

    def recharges(self, *, at: float) -> list[LedgerRow]:
        """Open rows to replace: what the gang holds has changed within its admission."""
        before, after = self.before, self.after
        if before is None or after is None or before.placement is None or after.placement is None:
            return []
        sets = before.workload.pod_sets, after.workload.pod_sets
        if before.placement.held == after.placement.held and sets[0] == sets[1]:
            return []
        were = {row.pod_set: row for row in charges(before, at=at)}
        return [row for row in charges(after, at=at) if row != were.get(row.pod_set)]

    @property
    def setback(self) -> Setback | None:
        """The traces of earlier admissions, where they change."""
        if self.after is None or self.ends:
            return None
        before = Setback(uid=self.uid) if self.before is None else self.before.setback
        return None if self.after.setback == before else self.after.setback

    @property
    def overrides(self) -> bool:
        """Whether what counts instead of the job's own words changes."""
        before = None if self.before is None else self.before.override
        return self.after is not None and self.after.override != before

    @property
    def edits(self) -> bool:
        """Whether the job, or a rule that it is under, has changed. Else it was looked at again, as after a cordon or
        an eviction, and may owe fewer pods by now.
        """
        before, after = self.before, self.after
        if before is None or after is None:
            return True
        if before.state.waiting and (before.state, before.not_asked) != (after.state, after.not_asked):
            return True
        if before.asked is not None and after.asked is not None:
            return before.asked != after.asked
        sizes = {p.name: p.count for p in after.workload.pod_sets}
        return before.workload.ask(sizes) != after.workload.ask(sizes)

    @property
    def whole(self) -> bool:
        """Whether a running gang has all pods again of which it was told that some are gone."""
        before, after = self.before, self.after
        if before is None or after is None or not (before.state is after.state is State.RUNNING):
            return False
        return before.short is not None and before.short.lost and after.short is None

    @property
    def reason(self) -> Explanation | None:
        """The reason to write. That of a job that is read again, or starts, is written with it."""
        if self.reread:
            return None
        if self.told is not None or self.later or self.before is None or self.after is None:
            return self.told
        return None if self.after.explanation == self.before.explanation else self.after.explanation

    @property
    def unexplains(self) -> bool:
        """Whether its reason is taken off, other than by a start."""
        before, after = self.before, self.after
        if self.reread or self.admits or before is None or after is None:
            return False
        return before.explanation is not None and after.explanation is None

    @property
    def writes(self) -> bool:
        """Whether there is anything of it for the database, and not for memory alone."""
        if self.later:
            return False
        parts = (
            self.reread, self.gone, self.results, self.effects, self.answers, self.reason, self._steps, self.ends,
            self.overrides, self.setback, self.lost, self.whole, self.unexplains,
        )  # fmt: skip
        return any(parts) or bool(self.recharges(at=0.0))


class Round(dict[str, Change]):
    """Changes by uid, made at `now`, and of workloads of which nothing could be made why: `failed`.

    `cycle`: the record of a decision, if the round carries one out; `bonds`, `reservations`: all that hold from then
    on, None = those of before. `revision`: the configuration that must be in force at the commit, None = any.
    """

    def __init__(
        self,
        lives: Mapping[str, Live],
        *,
        now: float,
        cycle: CycleRecord | None = None,
        bonds: tuple[Bond, ...] | None = None,
        reservations: tuple[Reservation, ...] | None = None,
        revision: int | None = None,
    ) -> None:
        super().__init__()
        self._lives, self.now, self.revision = lives, now, revision
        self.cycle, self.bonds, self.reservations = cycle, bonds, reservations
        self.failed: dict[str, Exception] = {}

    def live(self, uid: str) -> Live | None:
        """The workload as it is after what was gathered so far; None where there is none, or no more."""
        if uid not in self:
            return self._lives.get(uid)
        after = self[uid].after
        return None if after is None or after.is_over else after

    def put(
        self,
        uid: str,
        *,
        results: Sequence[Result] = (),
        effects: Sequence[Effect] = (),
        answers: Sequence[CommandAnswer] = (),
        **fields: Any,
    ) -> None:
        """Gather more of a workload's change: fields of `Change` by name."""
        known = self.get(uid)
        if known is None:
            before = self._lives.get(uid)
            given = {"after": before, **fields}
            self[uid] = Change(
                uid=uid, before=before, results=tuple(results), effects=tuple(effects), answers=tuple(answers),
                **given,
            )  # fmt: skip
        else:
            self[uid] = replace(
                known, results=(*known.results, *results), effects=(*known.effects, *effects),
                answers=(*known.answers, *answers), **fields,
            )  # fmt: skip

    def tell(self, reasons: Mapping[str, Explanation]) -> None:
        """Write these reasons too, where they still stand after what happens to the workload in this round."""
        for uid, why in reasons.items():
            after = self[uid].after if uid in self else None
            if uid not in self or (after is not None and after.explanation == why):
                self.put(uid, told=why)

    @contextmanager
    def isolate(self, uid: str) -> Iterator[None]:
        """Note what fails inside as the fault of this workload alone."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told
            self.failed[uid] = error

    def back_in_queue(self) -> list[str]:
        """Workloads that return to their queue in this round: their jobs must be read again."""
        return [uid for uid, change in self.items() if change.returns]

    @property
    def uids(self) -> set[str]:
        """All workloads that something is written of. Raises Isolated as `writes` does."""
        held: tuple[Bond | Reservation, ...] = (*(self.bonds or ()), *(self.reservations or ()))
        return {uid for uid in self if self._writes_of(uid)} | {each.uid for each in held}

    @property
    def writes(self) -> bool:
        """Whether there is anything for the database. Raises Isolated where that cannot be said of a change: its
        charge is worked out of assignments that somebody may have edited.
        """
        return self.cycle is not None or any(map(self._writes_of, self))

    def _writes_of(self, uid: str) -> bool:
        with isolate(uid):
            return self[uid].writes

    def only(self, uid: str) -> Round:
        """The round with one workload alone."""
        bonds, kept = self.bonds, self.reservations
        alone = Round(
            self._lives, now=self.now, cycle=self.cycle,
            bonds=None if bonds is None else tuple(bond for bond in bonds if bond.uid == uid),
            reservations=None if kept is None else tuple(each for each in kept if each.uid == uid),
        )  # fmt: skip
        if uid in self:
            alone[uid] = self[uid]
        return alone


def effect(kind: EntryKind, live: Live, patch: Mapping[str, Any]) -> Effect:
    """The PATCH that starts or suspends the job of an admitted workload, or withdraws its admission."""
    assert live.placement is not None
    return Effect(kind=kind, uid=live.uid, admission_id=live.placement.id, patch=patch)


def charges(live: Live, *, at: float) -> tuple[LedgerRow, ...]:
    """The open ledger rows of an admitted workload: one for each pod set, opened at `at`."""
    if live.placement is None:
        return ()
    sets = {pod_set.name: pod_set for pod_set in live.workload.pod_sets}
    held = live.placement.counts | dict(live.placement.held)
    return tuple(
        LedgerRow(
            uid=live.uid, attempt=live.attempt, queue=live.workload.queue, pod_set=a.pod_set, flavor=a.flavor,
            count=held[a.pod_set], amounts=demand_of((sets[a.pod_set],), held), opened=at,
        )
        for a in live.placement.assignments
    )  # fmt: skip

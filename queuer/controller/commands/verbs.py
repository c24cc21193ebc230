"""The effect of each command on a workload, as a pure function of the workload, its job and the rules.

Only an administrator of the queue changes a setting of an administrator. Other users may hold, release and lower. They
never raise a priority above the job's own, and never evict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.landing.settle import evicting
from queuer.controller.landing.writes import resting
from queuer.controller.memory.live import JobView, Live, lingers
from queuer.domain.fields import nearest
from queuer.domain.intake import highest_priority
from queuer.domain.override import Override, Setting, overridden
from queuer.domain.queue import SYSTEM_CLASSES
from queuer.domain.reasons import LONGEST, Token, simple
from queuer.domain.rules import Rules
from queuer.domain.workload import State, Workload
from queuer.store.commands import Command
from queuer.store.tables import CommandOutcome, CommandVerb

V = TypeVar("V")

REST = 60.0
"""Seconds for which an evicted gang is not offered: it was sent away to make room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCase:
    """A command, and what it is about. `live`, `job`: None = there is none."""

    command: Command
    live: Live | None
    job: JobView | None
    rules: Rules
    jobs: ClusterJobs
    now: float

    @property
    def administered(self) -> bool:
        """Whether the command's actor administers the queue in which the workload is now."""
        return self.live is not None and self.command.administers == self.live.workload.queue

    def own(self, live: Live) -> Workload:
        """The job's own words; the last that were read where its object is gone."""
        if self.job is None:
            return live.workload
        found, problems = self.jobs.reading(self.job)
        return self.jobs.bare_workload(self.job) if problems else found

    def setting(self, value: V) -> Setting[V]:
        """The value as the work of the command's actor."""
        by, why = self.command.actor, self.command.reason
        return Setting(value=value, by=by, at=self.now, reason=why, administered=self.administered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended. `live`: the workload after it, None = as before. `patch`: suspends its job; `note`:
    why, as a sentence for its owner.
    """

    outcome: CommandOutcome
    message: str
    live: Live | None = None
    patch: Mapping[str, Any] | None = None
    note: str = ""


def refuse(message: str) -> Done:
    """Nothing is done."""
    return Done(outcome=CommandOutcome.REFUSED, message=message)


def run(case: CommandCase) -> Done:
    """Carry a command out."""
    live = case.live
    if live is not None and case.command.verb is CommandVerb.EVICT and lingers(live, case.job):
        return _clean(case, live)
    if live is None or live.state.ended or live.deleted:
        return Done(outcome=CommandOutcome.GONE, message="the job has ended or is gone")
    override = live.override or Override()
    found = override.priority if case.command.verb is CommandVerb.PRIORITISE else override.hold
    if found is not None and found.administered and not case.administered:
        return refuse(
            f"{found.by} has overridden this job as administrator; only an administrator changes that"
        )
    return _VERBS[case.command.verb](case, live)


def _hold(case: CommandCase, live: Live) -> Done:
    waits = live.state.waiting
    text = "held" if waits else "it runs on; the hold counts once it is back in its queue"
    return _override(case, live, text, hold=case.setting(True))


def _release(case: CommandCase, live: Live) -> Done:
    """Where the job itself holds, that is overridden; else nothing is."""
    own, held = case.own(live).hold, live.override is not None and live.override.hold is not None
    if not own and not held:
        return Done(outcome=CommandOutcome.DONE, message="it was not on hold")
    return _override(case, live, "released", hold=case.setting(False) if own else None)


def _evict(case: CommandCase, live: Live) -> Done:
    if not case.administered:
        return refuse(f"only who administers {live.workload.queue} evicts there")
    if not live.state.evictable or case.job is None:
        return refuse("it is on its way out" if live.state is State.EVICTING else "it does not run")
    if not case.job.restarts:
        own = live.workload
        return refuse(
            "one of its pods has succeeded, and Kubernetes would call it Complete instead of running the rest again; "
            f"`kubectl delete {own.kind.lower()} {own.name} -n {own.namespace}` ends it"
        )
    command, hold = case.command, bool(case.command.arguments.get("hold"))
    note = _note(command)
    after = replace(
        evicting(live, now=case.now),
        override=replace(live.override or Override(), hold=case.setting(True)) if hold else live.override,
        displaced_by=frozenset(),
        failures=0,
        rest=None if hold else case.now + REST,
    )
    held = simple(Token.PENDING_EVALUATION, f"{note}; held until it is released")
    told = held if hold else resting(after, note)
    return Done(
        outcome=CommandOutcome.DONE,
        message=told.primary.text,
        live=replace(after, explanation=told),
        patch=case.jobs.evict(live),
        note=note,
    )


def _clean(case: CommandCase, live: Live) -> Done:
    """End the pods that its controller would leave alone after its end."""
    if not case.administered:
        return refuse(f"only who administers {live.workload.queue} evicts there")
    return Done(
        outcome=CommandOutcome.DONE,
        message="it has ended and its pods are told to go; what they hold is free once they are gone",
        live=evicting(live, now=case.now),
        patch=case.jobs.evict(live),
        note=_note(case.command),
    )


def _note(command: Command) -> str:
    return f"evicted by {command.actor}" + (f": {command.reason[:LONGEST]}" if command.reason else "")


def _prioritise(case: CommandCase, live: Live) -> Done:
    own, queue = case.own(live), live.workload.queue
    value = case.command.arguments.get("priority")
    if value is None:
        text = f"priority {live.workload.priority} -> {own.priority}, as the job says"
        return _override(case, live, text, priority=None)
    if case.job is None:
        return refuse("its object cannot be read")
    facts = case.jobs.facts(case.job)
    if isinstance(value, str):
        classes = {n: v for n, v in facts.priorities.items() if not n.startswith(SYSTEM_CLASSES)}
        if value not in classes:
            return refuse(f"no PriorityClass {value} orders jobs; {nearest(value, classes)}")
        value = classes[value]
    if value > own.priority and not case.administered:
        return refuse(
            f"{value} is above the job's own {own.priority}: only who administers {queue} raises it"
        )
    highest = highest_priority(queue, case.rules.tree, facts.values)
    if highest is not None and value > highest:
        return refuse(f"{value} is above {highest}, the most that queue {queue} allows")
    text = f"priority {live.workload.priority} -> {value}"
    if value != live.workload.priority:
        live = replace(live, displaced_by=frozenset())  # that was by another priority
    return _override(case, live, text, priority=case.setting(value))


def _override(case: CommandCase, live: Live, message: str, **changed: Setting[Any] | None) -> Done:
    """Work that waits is read again with it. Of work that runs the priority counts at once: for who may displace it."""
    override = replace(live.override or Override(), **changed)
    after = replace(live, override=None if override.empty else override)
    if not live.state.waiting:
        priority = overridden(case.own(live), override).priority
        after = replace(after, workload=replace(live.workload, priority=priority))
    return Done(outcome=CommandOutcome.DONE, message=message, live=after)


_VERBS: Mapping[CommandVerb, Callable[[CommandCase, Live], Done]] = MappingProxyType(
    {
        CommandVerb.HOLD: _hold,
        CommandVerb.RELEASE: _release,
        CommandVerb.EVICT: _evict,
        CommandVerb.PRIORITISE: _prioritise,
    }
)

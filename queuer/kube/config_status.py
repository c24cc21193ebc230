"""The status of Queue, Flavor and Topology objects: whether each is in force, and what a queue holds.

Written only where it differs from what the object says. Figures and words of one object are written at most once in
`PERIOD` seconds; that it is in force, or no more, at once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from queuer.domain.errors import FieldProblem
from queuer.kube.client import Client, NotFoundError
from queuer.kube.config_set import GROUP, VERSION, ConfigObject, ConfigSet, Listed
from queuer.kube.template import merge_diff

PERIOD = 10.0
"""Seconds between two writes of figures to one object."""
ACCEPTED = "Accepted"
_LONGEST_MESSAGE = 4096


class CrCondition(StrEnum):
    """Reason of the Accepted condition."""

    IN_FORCE = "InForce"
    INVALID = "Invalid"
    CONFLICT = "Conflict"
    SET_REFUSED = "SetRefused"  # itself right, but nothing is taken over while another object is wrong


_STATUS = {CrCondition.IN_FORCE: "True", CrCondition.SET_REFUSED: "Unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to one object."""

    condition: CrCondition
    message: str

    @property
    def event_type(self) -> str:
        """Type of the Event about it."""
        return "Normal" if self.condition is CrCondition.IN_FORCE else "Warning"


def verdicts(
    listed: Listed,
    wanted: ConfigSet,
    *,
    problems: Iterable[FieldProblem] = (),
    conflicts: Iterable[FieldProblem] = (),
) -> dict[str, Verdict]:
    """The verdict on each object, by uid. `problems`, `conflicts`: of the set as a whole."""
    new = {
        item.metadata.uid
        for _, item in listed.items()
        if not _in_force(accepted(item.status), item.metadata.generation)
    }
    wrong: dict[str, list[FieldProblem]] = {uid: list(found) for uid, found in wanted.wrong.items()}
    condition = dict.fromkeys(wrong, CrCondition.INVALID)
    homeless: list[FieldProblem] = []
    for kind, found in ((CrCondition.INVALID, problems), (CrCondition.CONFLICT, conflicts)):
        for problem in found:
            guilty = _guilty(problem, listed, wanted, new=new)
            homeless += [] if guilty else [problem]
            for uid in guilty:
                wrong.setdefault(uid, []).append(problem)
                condition.setdefault(uid, kind)
    names = {item.metadata.uid: f"{plural}/{item.metadata.name}" for plural, item in listed.items()}
    culprits = sorted(names[uid] for uid in wrong) + [str(problem) for problem in homeless]
    others = Verdict(condition=CrCondition.IN_FORCE, message="taken over")
    if culprits:
        message = f"mend first: {'; '.join(culprits)}; until then the last good set stays in force"
        others = Verdict(condition=CrCondition.SET_REFUSED, message=message)
    own = {
        uid: Verdict(condition=condition[uid], message="; ".join(map(str, found)))
        for uid, found in wrong.items()
    }
    return {uid: own.get(uid, others) for uid in names}


def _guilty(problem: FieldProblem, listed: Listed, wanted: ConfigSet, *, new: Container[str]) -> list[str]:
    """Uids of the objects that a problem is about. For the sum of those below it, a queue as it was in the last good
    set is not at fault: the `new` and changed ones are.
    """
    own = wanted.owner(problem)
    if own is not None and own in new:
        return [own]
    below = [
        item.metadata.uid
        for item in listed.queues
        if item.metadata.uid in new
        and any(problem.field.startswith(f"queues.{above}.quota[") for above in _above(item))
    ]
    return below or ([] if own is None else [own])


def _above(item: ConfigObject) -> Iterator[str]:
    path = str(item.spec.get("path", ""))
    while path := path.rpartition(".")[0]:
        yield path


def refusals(listed: Listed, said: Mapping[str, Verdict]) -> tuple[str, ...]:
    """Why the set was refused, e.g. `queues/team-a: the sum is …`, by object; () where it is in force."""
    refused = [
        (f"{plural}/{item.metadata.name}", verdict)
        for plural, item in listed.items()
        if (verdict := said[item.metadata.uid]).condition is not CrCondition.IN_FORCE
    ]
    own = [f"{name}: {v.message}" for name, v in refused if v.condition is not CrCondition.SET_REFUSED]
    return tuple(sorted(own)) or tuple(sorted({v.message for _, v in refused}))


def status_of(
    verdict: Verdict,
    *,
    generation: int,
    present: Mapping[str, Any],
    figures: Mapping[str, Any],
    now: float,
) -> dict[str, Any]:
    """The status that an object is to have; `present` itself, where it says the same already.

    `figures`: fields to set beside the condition, e.g. `{"used": {"cpu": "4"}}`.
    """
    old = accepted(present)
    if verdict.condition is CrCondition.SET_REFUSED and _in_force(old, generation):
        condition = dict(old)  # the last good set holds it as it is
    else:
        condition = {
            "type": ACCEPTED,
            "status": _STATUS.get(verdict.condition, "False"),
            "reason": str(verdict.condition),
            "message": verdict.message[:_LONGEST_MESSAGE],
            "observedGeneration": generation,
        }
    kept = old.get("status") == condition["status"] and "lastTransitionTime" in old
    condition["lastTransitionTime"] = old["lastTransitionTime"] if kept else stamp(now)
    others = [c for c in present.get("conditions", ()) if c.get("type") != ACCEPTED]
    return {**present, "observedGeneration": generation, "conditions": [*others, condition], **figures}


def accepted(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Accepted condition of a status; {} where there is none."""
    return next((c for c in status.get("conditions", ()) if c.get("type") == ACCEPTED), {})


def _in_force(condition: Mapping[str, Any], generation: int) -> bool:
    return condition.get("status") == "True" and condition.get("observedGeneration") == generation


def stamp(now: float) -> str:
    """A time as Kubernetes writes it, whole seconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True, kw_only=True)
class Statuses:
    """The statuses as far as they are known, and when each was written last (seconds, by uid).

    `untold`: verdicts that were written and of which no Event tells yet.
    """

    known: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)
    untold: dict[str, Verdict] = field(default_factory=dict)
    _newer: set[str] = field(default_factory=set)
    """Uids of the objects that were written since the last listing began."""

    def listing(self) -> None:
        """A listing begins: it may miss statuses that are written from now on."""
        self._newer.clear()

    def seen(self, listed: Listed) -> None:
        """Take over a listing; forget objects that are gone."""
        ours = {uid: self.known[uid] for uid in self._newer}
        self.known = {item.metadata.uid: item.status for _, item in listed.items()}
        self.known |= {uid: status for uid, status in ours.items() if uid in self.known}
        self.written = {uid: at for uid, at in self.written.items() if uid in self.known}
        self.untold = {uid: verdict for uid, verdict in self.untold.items() if uid in self.known}

    async def write(
        self,
        client: Client,
        listed: Listed,
        said: Mapping[str, Verdict],
        *,
        figures: Mapping[str, Mapping[str, Any]],
        now: float,
    ) -> None:
        """Write what differs. `figures` by queue path. Objects written less than PERIOD ago are spared, unless they
        come into force or fall out of it.

        A listing that is taken over meanwhile ends it: its verdicts are newer.
        """
        known = self.known
        for plural, item in listed.items():
            if self.known is not known:
                return
            meta = item.metadata
            present, verdict = self.known.get(meta.uid, {}), said[meta.uid]
            amounts = figures.get(str(item.spec.get("path")), {}) if plural == "queues" else {}
            status = status_of(verdict, generation=meta.generation, present=present, figures=amounts, now=now)
            change = merge_diff(present, status)
            rests = now - self.written.get(meta.uid, float("-inf")) < PERIOD
            if not change or (rests and _judges(accepted(present)) == _judges(accepted(status))):
                continue
            self.written[meta.uid] = now
            path = f"/apis/{GROUP}/{VERSION}/{plural}/{meta.name}/status"
            patch = {"metadata": {"uid": meta.uid}, "status": change}
            if _tells(accepted(present)) != _tells(accepted(status)):
                self.untold[meta.uid] = verdict
            try:
                await client.merge_patch(path, patch, resource=f"{plural}/status")
            except NotFoundError:
                continue  # deleted meanwhile
            self.known[meta.uid] = status
            self._newer.add(meta.uid)


def _judges(condition: Mapping[str, Any]) -> tuple[Any, ...]:
    return condition.get("reason"), condition.get("observedGeneration")


def _tells(condition: Mapping[str, Any]) -> tuple[Any, ...]:
    return condition.get("reason"), condition.get("message"), condition.get("observedGeneration")

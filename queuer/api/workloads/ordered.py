"""The shapes of commands on workloads: what is asked, and how it ended."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from queuer.api.models import Instant, Model
from queuer.store.commands import Command as Stored
from queuer.store.tables import CommandOutcome, CommandVerb

MOST = 500
"""Workloads of one request."""
_Reason = Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00]*$")]
_Uid = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[^\x00]*$")]
_Uids = Annotated[list[_Uid], Field(min_length=1, max_length=MOST)]
_LOWEST, _HIGHEST = -(2**31), 10**9
"""Values that a PriorityClass of users may have."""
Priority = (
    Annotated[int, Field(strict=True, ge=_LOWEST, le=_HIGHEST)]
    | Annotated[
        str, StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    ]
    | None
)


class Why(Model):
    """Why, for the audit and whoever asks what became of the job."""

    reason: _Reason = ""


class Eviction(Why):
    """`hold`: it is held once it is back in its queue."""

    hold: bool = False


class Prioritisation(Why):
    """`priority`: a number or a PriorityClass; null = as the job says itself."""

    priority: Priority


class Those(Why):
    """The jobs that are meant, by uid."""

    uids: _Uids


class EvictionOfThose(Eviction):
    """The jobs that are meant, by uid. `hold`: they are held once they are back in their queues."""

    uids: _Uids


class PrioritisationOfThose(Prioritisation):
    """The jobs that are meant, by uid."""

    uids: _Uids


class Command(Model):
    """A command. `outcome` null: it is not taken up yet; `due`: not before then; `by`: who asked."""

    id: int
    verb: CommandVerb
    uid: str
    arguments: dict[str, Any]
    by: str
    source: str
    reason: str
    at: Instant
    due: Instant
    done: Instant | None
    outcome: CommandOutcome | None
    message: str | None


class Refusal(Model):
    """Why nothing was asked of the controller; `code` as a problem of that kind has it."""

    code: str
    detail: str


class Item(Model):
    """The answer for one of many: a command, or the reason why there is none."""

    uid: str
    command: Command | None = None
    refused: Refusal | None = None


class Items(Model):
    """The answer for each, in the order asked."""

    items: list[Item]


def command(stored: Stored) -> Command:
    """As REST says it."""
    outcome, message = stored.outcome, stored.message
    if stored.expired:
        outcome, message = CommandOutcome.REFUSED, "no controller took it up"
    return Command.from_record(stored, by=stored.actor, done=stored.done_at, outcome=outcome, message=message)

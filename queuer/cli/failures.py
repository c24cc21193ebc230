"""How verbs fail: exit codes, and the errors that carry one."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from queuer.domain.errors import QueuerError


class Exit(IntEnum):
    """Exit codes of every verb that talks to the API. `meaning`: when a verb ends with it."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    OK = 0, "done"
    FAILURE = 1, "failed"
    USAGE = (
        2,
        "usage: a flag, a file, a refused document, an ambiguous name, a write without a terminal and without `-y`",
    )
    NOT_FOUND = 3, "not found"
    FORBIDDEN = 4, "not logged in, or forbidden"
    CONFLICT = (
        5,
        "conflict: the tree moved since it was planned, another writer owns it, or the controller refused a command",
    )
    TIMEOUT = 6, "no answer in time, of the controller to a command too"
    UNREACHABLE = 7, "the server, or a part that it needs, cannot be reached"


EXIT_BY_VERDICT = {"WAIT": 10, "CHANGE": 11, "ESCALATE": 12, "HELD": 13}
"""What `--exit-status` makes of the reason why a job waits."""


class CommandFailed(QueuerError):
    """A verb could not do what was asked. `hint`: what to do, a sentence; `next`: a command that runs as it stands.
    `problem`: the code of what the API said, "" where it said nothing.
    """

    code = "command_failed"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        next: str = "",
        exit_code: int = Exit.FAILURE,
        problem: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.next, self.exit_code, self.problem = next, exit_code, problem


class Misused(CommandFailed):
    """A flag, a file or a name was wrong."""

    def __init__(self, message: str, *, hint: str = "", next: str = "") -> None:
        super().__init__(message, hint=hint, next=next, exit_code=Exit.USAGE)

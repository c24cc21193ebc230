"""What `queuer doctor` finds: one sentence about one part of an installation, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

RIGHTS = "let an administrator run it, or name their kubeconfig: queuer doctor --kubeconfig FILE"
"""The fix of all that the caller may not look at."""


class Health(StrEnum):
    """`warning`: legal, and probably not meant; `unknown`: it could not be looked at, so nothing is said of it."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`check`: the name of what was looked at; `fix`: a command or an act, "" where there is nothing to mend."""

    check: str
    health: Health
    text: str
    fix: str = ""


def ok(check: str, text: str) -> Finding:
    """It is as it should be."""
    return Finding(check=check, health=Health.OK, text=text)


def odd(check: str, text: str, fix: str) -> Finding:
    """It is allowed, and probably not meant."""
    return Finding(check=check, health=Health.WARNING, text=text, fix=fix)


def wrong(check: str, text: str, fix: str) -> Finding:
    """It must be mended."""
    return Finding(check=check, health=Health.WRONG, text=text, fix=fix)


def barred(check: str, text: str) -> Finding:
    """It could not be looked at for want of a right."""
    return unknown(check, text, RIGHTS)


def unknown(check: str, text: str, fix: str) -> Finding:
    """It could not be looked at; `fix`: what makes that possible."""
    return Finding(check=check, health=Health.UNKNOWN, text=text, fix=fix)

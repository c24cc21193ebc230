"""Workloads whose handling failed: each is left alone while everybody else goes on, and tried again with back-off.

`Term.quarantine` puts them here. Reading, landing, commands and decisions leave out what is in here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from queuer.domain.backoff import BackOff
from queuer.domain.reasons import LONGEST, Explanation, Token, simple

BACK_OFF = BackOff(first=10.0, longest=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineEntry:
    """One workload. `failures`: in a row; `until`: when it is tried again; `tried`: it is being tried."""

    why: Explanation
    failures: int
    until: float
    tried: bool = False


class Quarantine:
    """The workloads to leave alone. An entry is forgotten once nothing failed for the longest back-off."""

    def __init__(self) -> None:
        self._entries: dict[str, QuarantineEntry] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether this workload is to be left alone."""
        entry = self._entries.get(uid)
        return entry is not None and not entry.tried

    def __len__(self) -> int:
        return len(self.uids())

    def uids(self) -> list[str]:
        """The workloads that are to be left alone."""
        return [uid for uid, entry in self._entries.items() if not entry.tried]

    def put(self, uid: str, error: Exception, *, now: float) -> Explanation:
        """Leave a workload alone from now on; returns the reason to tell."""
        before = self._entries.get(uid)
        failures = 1 if before is None else before.failures + 1
        wait = BACK_OFF.after(failures)
        said = f"{type(error).__name__}: {error}"[:LONGEST]
        text = f"Queuer could not handle this job and has set it aside, next try in {wait:.0f} s: {said}"
        why = simple(Token.QUARANTINED, text, error=said, failures=failures)
        self._entries[uid] = QuarantineEntry(why=why, failures=failures, until=now + wait)
        return why

    def due(self, now: float) -> list[str]:
        """The workloads to try again; they are left alone no more."""
        found = [uid for uid, entry in self._entries.items() if not entry.tried and entry.until <= now]
        for uid in found:
            self._entries[uid] = replace(self._entries[uid], tried=True)
        past = now - BACK_OFF.longest
        for uid in [uid for uid, entry in self._entries.items() if entry.tried and entry.until < past]:
            del self._entries[uid]
        return found

    def why(self, uid: str) -> Explanation | None:
        """Why a workload is left alone; None where it is not."""
        return self._entries[uid].why if uid in self else None

    def forget(self, uid: str) -> None:
        """It is gone."""
        self._entries.pop(uid, None)

    @property
    def next(self) -> float:
        """When the next is tried again."""
        return min((entry.until for entry in self._entries.values() if not entry.tried), default=inf)

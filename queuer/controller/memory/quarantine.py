"""Workloads whose handling failed, set aside one by one so that everybody else goes on; tried again with back-off."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from queuer.domain.backoff import BackOff
from queuer.domain.reasons import LONGEST, Explanation, Token, simple

BACK_OFF = BackOff(first=10.0, longest=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One workload. `failures`: in a row; `until`: when it is tried again; `tried`: it is being tried."""

    why: Explanation
    failures: int
    until: float
    tried: bool = False


class Quarantine:
    """Who is set aside. A case is forgotten once nothing failed for as long as the longest back-off."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether this workload is to be left alone."""
        case = self._cases.get(uid)
        return case is not None and not case.tried

    def __len__(self) -> int:
        return sum(not case.tried for case in self._cases.values())

    def put(self, uid: str, error: Exception, *, now: float) -> Explanation:
        """Set a workload aside; returns the reason to tell."""
        before = self._cases.get(uid)
        failures = 1 if before is None else before.failures + 1
        wait = BACK_OFF.after(failures)
        said = f"{type(error).__name__}: {error}"[:LONGEST]
        text = f"Queuer could not handle this job and has set it aside, next try in {wait:.0f} s: {said}"
        why = simple(Token.QUARANTINED, text, error=said, failures=failures)
        self._cases[uid] = Case(why=why, failures=failures, until=now + wait)
        return why

    def due(self, now: float) -> list[str]:
        """Who is to be tried again, from now on left alone no more."""
        found = [uid for uid, case in self._cases.items() if not case.tried and case.until <= now]
        for uid in found:
            case = self._cases[uid]
            self._cases[uid] = Case(why=case.why, failures=case.failures, until=case.until, tried=True)
        for uid in [
            u for u, case in self._cases.items() if case.tried and case.until + BACK_OFF.longest < now
        ]:
            del self._cases[uid]
        return found

    def why(self, uid: str) -> Explanation | None:
        """Why a workload is set aside; None where it is not."""
        return self._cases[uid].why if uid in self else None

    def forget(self, uid: str) -> None:
        """It is gone."""
        self._cases.pop(uid, None)

    @property
    def next(self) -> float:
        """When the next is tried again."""
        return min((case.until for case in self._cases.values() if not case.tried), default=inf)

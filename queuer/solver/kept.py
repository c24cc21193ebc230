"""Answers that are kept while a clock stands still, so that each cache says in one line what it rests on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """Answers by key, all dropped when the clock has moved."""

    __slots__ = ("_answers", "_clock", "_moment", "_most")

    def __init__(self, clock: Callable[[], object], *, most: int | None = None) -> None:
        """`most`: how many are kept, the newest."""
        self._clock = clock
        self._most = most
        self._moment: object = None
        self._answers: dict[object, Answer] = {}

    def of(self, key: object, make: Callable[[], Answer]) -> Answer:
        """The answer for this key, made now if there is none from this moment."""
        moment = self._clock()
        if moment != self._moment:
            self._moment, self._answers = moment, {}
        if key not in self._answers:
            self._answers[key] = make()
            if self._most is not None and len(self._answers) > self._most:
                del self._answers[next(iter(self._answers))]
        return self._answers[key]

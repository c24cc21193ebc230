"""Pauses between tries grow, and stay bounded however often something fails."""

from __future__ import annotations

from itertools import islice

from queuer.domain.backoff import BackOff

BACK_OFF = BackOff(first=60, longest=300)


def test_pauses_double_and_are_bounded() -> None:
    assert [BACK_OFF.after(n) for n in (1, 2, 3, 4, 9999)] == [60, 120, 240, 300, 300]


def test_each_iteration_begins_anew() -> None:
    for _ in range(2):
        assert list(islice(BACK_OFF, 4)) == [60, 120, 240, 300]

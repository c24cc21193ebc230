"""The log says once that a term ended, and does not repeat every second why none begins."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from queuer.controller.main import QUIET, TermLog
from queuer.store.engine import DatabaseUnavailable

ENDED, CANNOT = "the term of office ended", "no term of office can begin, tried again"


@pytest.mark.parametrize("led", [True, False])
def test_an_outage_of_an_hour_is_few_lines(led: bool) -> None:
    """One of two controllers led. A second outage, later, is told at once."""
    clock = [0.0]
    log = TermLog(now=lambda: clock[0])
    away = [DatabaseUnavailable("PostgreSQL: connection refused")]
    with capture_logs() as lines:
        if led:
            log.ended(away, led=True)
        for second in range(3600):
            clock[0] = 1.0 + second
            log.ended(away, led=False)
    events = [line["event"] for line in lines]
    assert events == [ENDED] * led + [CANNOT] * len(events[led:])
    assert 5 <= len(events) <= 25
    assert lines[-1]["said"] == ["PostgreSQL: connection refused"]
    clock[0] += QUIET + 1.0
    with capture_logs() as again:
        log.ended(away, led=False)
    assert [line["event"] for line in again] == [CANNOT]

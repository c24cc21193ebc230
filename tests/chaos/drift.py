"""The ledger is changed behind a running controller's back, and put right by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.e2e.controller import GPU, Controller, Database
from tests.e2e.support import wait_until

LONGEST = 120.0
"""Seconds within which drift is to be repaired."""
NOBODY = "nobody"
"""Uid of a row that nobody holds."""
METRIC = "queuer_quota_drift"
_ROWS = "SELECT uid, pod_set, queue, count, amounts FROM ledger WHERE closed IS NULL ORDER BY uid, pod_set"
REPAIRS = "SELECT at, detail->>'uid' AS uid, reason FROM audit WHERE action = 'ledger.repair'"
"""What the auditor put right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """Seconds from the change until the ledger was as before, and the metric was 0 again."""

    repaired: float
    over: float

    def __str__(self) -> str:
        return f"drift repaired after {self.repaired:.1f} s, over {self.over:.1f} s"


def charge_nobody(database: Database, queue: str) -> None:
    """Add a row that nobody holds."""
    database.execute(
        "INSERT INTO ledger (uid, attempt, queue, pod_set, flavor, count, amounts, opened) VALUES"
        f""" ('{NOBODY}', 1, '{queue}', 'main', 'default', 1, '{{"{GPU}": 3}}', now())"""
    )


def put_right(process: Controller, database: Database, *, edited: str, removed: str, queue: str) -> Repaired:
    """Edit the row of one running gang, remove another's, both by uid, and add one for nobody; wait until all is well.

    Fails where that takes more than `LONGEST` seconds, or where a repair has no audit row.
    """
    before, began = database.rows(_ROWS), time.monotonic()
    database.execute(
        f"""UPDATE ledger SET amounts = amounts || '{{"{GPU}": 17}}' WHERE uid = '{edited}' AND closed IS NULL"""
    )
    database.execute(f"DELETE FROM ledger WHERE uid = '{removed}' AND closed IS NULL")
    charge_nobody(database, queue)
    assert database.rows(_ROWS) != before, "the ledger is wrong"

    def after(condition: Callable[[], bool], what: str) -> float:
        wait_until(
            condition, timeout=LONGEST, describe=lambda: f"{what}; its log ends:\n{process.log_tail(5)}"
        )
        return time.monotonic() - began

    # The metric is shown from before the repair until the next look. It is read once the repair is there: each
    # reading is told again for some seconds.
    right = after(lambda: database.rows(_ROWS) == before, "the ledger is as it was")
    after(lambda: process.metric(METRIC) > 0, "the drift is shown")
    over = after(lambda: process.metric(METRIC) == 0, "no drift is left")
    told = {row["uid"]: row["reason"] for row in database.rows(REPAIRS)}
    expected = {
        edited: "charged otherwise than held",
        removed: "held, but not charged",
        NOBODY: "charged, but nobody holds it",
    }
    assert expected.items() <= told.items()
    assert right <= LONGEST
    return Repaired(repaired=right, over=over)

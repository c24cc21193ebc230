"""A workload whose handling failed is set aside: reason `Quarantined`. What a start of the controller reads is indexed.

Revision: 0005, after 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BEFORE = (
    "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota", "WaitingForQuota", "BorrowingLimitReached", "BehindInQueue",
    "TopologyPlacementFailed", "WaitingForPreemptedWorkloads", "PendingEvaluation", "SolverDeferred", "Suspended",
    "OnHold", "AdmittedNotPlaced", "NodesUnavailable", "ControllerStale",
)  # fmt: skip
AFTER = (*BEFORE, "Quarantined")
COLUMNS = (("workload", "token"), ("reason_transition", "from_token"), ("reason_transition", "token"))


def upgrade() -> None:
    _words(AFTER)
    op.create_index(
        "ix_event_evicting", "event", ["at"], postgresql_where=sa.text("data->>'to' = 'Evicting'")
    )


def downgrade() -> None:
    op.drop_index("ix_event_evicting", "event")
    op.execute(
        "UPDATE workload SET token = NULL, explanation = NULL, reason_since = NULL WHERE token = 'Quarantined'"
    )
    op.execute("DELETE FROM reason_transition WHERE 'Quarantined' IN (token, from_token)")
    _words(BEFORE)


def _words(words: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{word}'" for word in words)
    for table, column in COLUMNS:
        name = op.f(f"ck_{table}_{column}")
        op.drop_constraint(name, table, type_="check")
        op.create_check_constraint(name, table, f"{column} IN ({listed})")

"""Indexes for lists of workloads that match little of the past.

Revision: 0014, after 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_BY = {"namespace": "namespace", "queue": "queue", "user": "user_name"}


def upgrade() -> None:
    for name, column in _BY.items():
        op.create_index(f"ix_workload_{name}", "workload", [column, "submitted", "uid"])
    op.create_index(
        "ix_workload_unsuccessful",
        "workload",
        ["submitted", "uid"],
        postgresql_where=sa.text("state <> 'Succeeded'"),
    )


def downgrade() -> None:
    for name in (*_BY, "unsuccessful"):
        op.drop_index(f"ix_workload_{name}", "workload")

"""Admissions of a cycle land in any order; the newest decision is kept for whoever asks why a workload waits.

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

WAVED = ("admission", "outbox")


def upgrade() -> None:
    for table in WAVED:
        op.drop_column(table, "wave")
    op.create_table(
        "stored_cycle",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, server_default=sa.text("1"), nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_stored_cycle_singleton")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stored_cycle")),
        comment="What the newest decision was given and answered, for whoever asks why a workload waits.",
    )


def downgrade() -> None:
    op.drop_table("stored_cycle")
    for table in WAVED:
        op.add_column(table, sa.Column("wave", sa.Integer(), server_default="0", nullable=False))
        op.alter_column(table, "wave", server_default=None)

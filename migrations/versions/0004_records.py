"""The leader's heartbeat, usage over time, and indexes by which old audit rows and the newest runs are found.

Revision: 0004, after 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_audit_at", "audit", ["at"], postgresql_where=sa.text("revision IS NULL"))
    op.create_index(
        "ix_workload_finished_at",
        "workload",
        ["finished_at"],
        postgresql_where=sa.text("finished_at IS NOT NULL"),
    )
    op.create_table(
        "heartbeat",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, server_default=sa.text("1"), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("round_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=True),
        sa.Column("cycle_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cycle_seconds", sa.Double(), nullable=True),
        sa.Column("waiting", sa.Integer(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_heartbeat_singleton")),
        sa.CheckConstraint(
            "status IN ('GREEDY', 'OPTIMAL', 'FEASIBLE', 'FAILED')", name=op.f("ck_heartbeat_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_heartbeat")),
        comment="That the leader is there, when its loop last went round, and its last cycle.",
    )
    op.create_table(
        "usage_rollup",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("admitted", sa.Integer(), nullable=False),
        sa.Column("amounts", postgresql.JSONB(), nullable=False),
        sa.CheckConstraint("seconds IN (60, 3600)", name=op.f("ck_usage_rollup_seconds")),
        sa.PrimaryKeyConstraint("queue", "seconds", "at", name=op.f("pk_usage_rollup")),
        comment="Usage over time, a row a queue and minute or hour. `amounts`: accounts, as `usage.Amounts` has them.",
    )
    op.create_index("ix_usage_rollup_seconds_at", "usage_rollup", ["seconds", "at"])


def downgrade() -> None:
    op.drop_table("usage_rollup")
    op.drop_table("heartbeat")
    op.drop_index(
        "ix_workload_finished_at", table_name="workload", postgresql_where=sa.text("finished_at IS NOT NULL")
    )
    op.drop_index("ix_audit_at", table_name="audit", postgresql_where=sa.text("revision IS NULL"))

"""Commands on workloads, and what they override of what a job says itself.

Revision: 0012, after 0011
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workload", sa.Column("override", postgresql.JSONB(none_as_null=True), nullable=True))
    op.create_table(
        "command",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("administers", sa.Text(), nullable=True),
        sa.Column("arguments", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "verb IN ('hold', 'release', 'evict', 'prioritise')", name=op.f("ck_command_verb")
        ),
        sa.CheckConstraint("outcome IN ('done', 'refused', 'gone')", name=op.f("ck_command_outcome")),
        sa.CheckConstraint("(done_at IS NULL) = (outcome IS NULL)", name=op.f("ck_command_done")),
        sa.ForeignKeyConstraint(["uid"], ["workload.uid"], name=op.f("fk_command_uid"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_command")),
        comment="What the leader is to do to a workload, from `due` on. `administers`: its queue, if the actor does.",
    )
    op.create_index("ix_command_uid", "command", ["uid"])
    op.create_index("ix_command_undone", "command", ["id"], postgresql_where=sa.text("done_at IS NULL"))
    op.create_index(
        "ix_command_done", "command", ["done_at"], postgresql_where=sa.text("done_at IS NOT NULL")
    )


def downgrade() -> None:
    op.drop_table("command")
    op.drop_column("workload", "override")

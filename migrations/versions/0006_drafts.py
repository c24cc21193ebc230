"""Changesets that are planned and not applied yet, and answers by Idempotency-Key.

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "draft",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("reverts", sa.BigInteger(), nullable=True),
        sa.Column("changes", postgresql.JSONB(), nullable=False),
        sa.Column("report", postgresql.JSONB(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("evict_after", sa.Double(), nullable=True),
        sa.Column("state", sa.Text(), server_default=sa.text("'planned'"), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("writer IN ('api', 'crd', 'file')", name=op.f("ck_draft_writer")),
        sa.CheckConstraint("effect IN ('drain', 'refuse', 'evict')", name=op.f("ck_draft_effect")),
        sa.CheckConstraint("state IN ('planned', 'applied', 'discarded')", name=op.f("ck_draft_state")),
        sa.CheckConstraint("(state = 'applied') = (revision IS NOT NULL)", name=op.f("ck_draft_applied")),
        sa.ForeignKeyConstraint(["reverts"], ["changeset.revision"], name=op.f("fk_draft_reverts")),
        sa.ForeignKeyConstraint(["revision"], ["changeset.revision"], name=op.f("fk_draft_revision")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_draft")),
        comment="Planned changesets: what they change, and what was told of it. None is applied after `expires`.",
    )
    op.create_index("ix_draft_at", "draft", ["at"])
    op.create_table(
        "idempotency",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("headers", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("(status IS NULL) = (body IS NULL)", name=op.f("ck_idempotency_answered")),
        sa.PrimaryKeyConstraint("caller", "key", name=op.f("pk_idempotency")),
        comment="Requests by Idempotency-Key, with the answer once there is one.",
    )
    op.create_index("ix_idempotency_at", "idempotency", ["at"])


def downgrade() -> None:
    op.drop_table("idempotency")
    op.drop_table("draft")

"""Starts are found by their time: how long who started then had waited.

Revision: 0008, after 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_admission_at", "admission", ["at"])


def downgrade() -> None:
    op.drop_index("ix_admission_at", table_name="admission")

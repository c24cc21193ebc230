"""An index alone tells who came and went over a day of decisions, whose rows are wide.

Revision: 0016, after 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_cycle_moved",
        "cycle",
        ["started_at"],
        postgresql_include=["admitted", "evicted"],
        postgresql_where=sa.text("admitted > 0 OR evicted > 0"),
    )


def downgrade() -> None:
    op.drop_index("ix_cycle_moved", "cycle")

"""Where the pods of an admission really are, and whether it came when it was told.

Revision: 0011, after 0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("admission", sa.Column("hosts", postgresql.JSONB(), nullable=True))
    op.add_column("admission", sa.Column("hit", sa.Boolean(), nullable=True))
    op.create_index("ix_admission_told", "admission", ["at"], postgresql_where=sa.text("hit IS NOT NULL"))


def downgrade() -> None:
    op.drop_index("ix_admission_told", "admission")
    op.drop_column("admission", "hit")
    op.drop_column("admission", "hosts")

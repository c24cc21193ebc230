"""Where the pods of an admission really are.

Revision: 0010, after 0007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("admission", sa.Column("hosts", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("admission", "hosts")

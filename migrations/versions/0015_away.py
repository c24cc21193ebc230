"""Since when the API server does not answer the leader.

Revision: 0015, after 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("heartbeat", sa.Column("away_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("heartbeat", "away_at")

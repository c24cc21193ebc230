"""Sessions of browsers that logged in at an OIDC provider.

Revision: 0009, after 0008
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "session",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("groups", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_session")),
        comment="Browsers that logged in. `digest`: SHA-256 of the cookie. Delete a row to log out.",
    )
    op.create_index("ix_session_expires", "session", ["expires"])


def downgrade() -> None:
    op.drop_table("session")

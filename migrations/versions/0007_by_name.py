"""A job is found by namespace and name, with or without its kind, however many jobs its namespace has had.

Revision: 0007, after 0006
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NAME = "ix_workload_reference"


def upgrade() -> None:
    _index("namespace", "name", "submitted")


def downgrade() -> None:
    _index("namespace", "kind", "name", "submitted")


def _index(*columns: str) -> None:
    op.drop_index(NAME, "workload")
    op.create_index(NAME, "workload", list(columns))

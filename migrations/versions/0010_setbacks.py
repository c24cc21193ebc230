"""What failed landings left with a workload, and why it is put before no decision, have columns of their own.

Two columns that nobody read are gone.

Revision: 0010, after 0009
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "workload", sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column("workload", sa.Column("rest", sa.DateTime(timezone=True), nullable=True))
    op.add_column("workload", sa.Column("barred", sa.Text(), nullable=True))
    op.create_check_constraint(
        op.f("ck_workload_barred"), "workload", "barred IN ('misconfigured', 'draining', 'beyond')"
    )
    # They were kept in the reason that was told.
    op.execute("""
        UPDATE workload SET failures = (explanation->'primary'->'params'->>'failures')::int,
            rest = to_timestamp((explanation->'primary'->'params'->>'retryAt')::double precision)
        WHERE token = 'AdmittedNotPlaced' AND explanation->'primary'->'params' ? 'retryAt'
    """)
    op.execute("""
        UPDATE workload SET barred =
            CASE WHEN explanation->'primary'->'params' ? 'draining' THEN 'draining' ELSE 'misconfigured' END
        WHERE state = 'Queued' AND token = 'Misconfigured'
    """)
    op.drop_column("workload", "template")
    op.drop_column("workload", "resource_version")


def downgrade() -> None:
    for name, kind, filler in (
        ("resource_version", sa.Text(), "''"),
        ("template", postgresql.JSONB(), "'{}'"),
    ):
        op.add_column("workload", sa.Column(name, kind, server_default=sa.text(filler), nullable=False))
        op.alter_column("workload", name, server_default=None)
    for column in ("barred", "rest", "failures"):
        op.drop_column("workload", column)

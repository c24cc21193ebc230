"""Configuration, workloads, decisions and their effects: the first schema.

Revision: 0001, the first
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TOKENS = (
    "'Misconfigured', "
    "'NoMatchingFlavor', "
    "'ExceedsMaxQuota', "
    "'WaitingForQuota', "
    "'BorrowingLimitReached', "
    "'BehindInQueue', "
    "'TopologyPlacementFailed', "
    "'WaitingForPreemptedWorkloads', "
    "'PendingEvaluation', "
    "'SolverDeferred', "
    "'Suspended', "
    "'OnHold', "
    "'AdmittedNotPlaced', "
    "'NodesUnavailable', "
    "'ControllerStale'"
)


def upgrade() -> None:
    op.create_table(
        "changeset",
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("changes", postgresql.JSONB(), nullable=False),
        sa.Column("reverts", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("writer IN ('api', 'crd', 'file')", name=op.f("ck_changeset_writer")),
        sa.ForeignKeyConstraint(["reverts"], ["changeset.revision"], name=op.f("fk_changeset_reverts")),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_changeset")),
        comment="Applied changes of the configuration: each names an object with its form before and after.",
    )
    op.create_table(
        "configuration",
        sa.Column("id", sa.SmallInteger(), server_default=sa.text("1"), autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_configuration_singleton")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_configuration")),
        comment="Revision of queues, flavors and topology together; its row lock orders all changesets.",
    )
    op.create_table(
        "cycle",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("admitted", sa.Integer(), nullable=False),
        sa.Column("evicted", sa.Integer(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column(
            "stats",
            postgresql.JSONB(none_as_null=True),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "capacity",
            postgresql.JSONB(none_as_null=True),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "status IN ('GREEDY', 'OPTIMAL', 'FEASIBLE', 'FAILED')", name=op.f("ck_cycle_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cycle")),
        comment="One row per committed decision. `capacity`: {flavor: {resource: allocatable}}, base units.",
    )
    op.create_index("ix_cycle_started_at", "cycle", ["started_at"], unique=False)
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=True),
        sa.Column("queue", sa.Text(), nullable=True),
        sa.Column(
            "data", postgresql.JSONB(none_as_null=True), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        comment="What happened. Ids rise in commit order, so a reader may resume after the last it has seen.",
    )
    op.create_index("ix_event_at", "event", ["at"], unique=False)
    op.create_index(
        "ix_event_uid", "event", ["uid", "id"], unique=False, postgresql_where=sa.text("uid IS NOT NULL")
    )
    op.create_table(
        "flavor",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("node_labels", postgresql.JSONB(), nullable=False),
        sa.Column("tolerations", postgresql.JSONB(), nullable=False),
        sa.Column("managed_by", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("managed_by IN ('api', 'crd', 'file')", name=op.f("ck_flavor_managed_by")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_flavor")),
        comment="A node belongs to the first that matches, by position, then name.",
    )
    op.create_table(
        "leader",
        sa.Column("id", sa.SmallInteger(), server_default=sa.text("1"), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("holder", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_leader_singleton")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leader")),
        comment="The epoch that every write of a controller must carry.",
    )
    op.create_table(
        "ledger",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("pod_set", sa.Text(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("amounts", postgresql.JSONB(), nullable=False),
        sa.Column("opened", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("jsonb_typeof(amounts) = 'object'", name=op.f("ck_ledger_amounts")),
        sa.CheckConstraint("closed >= opened", name=op.f("ck_ledger_interval")),
        sa.CheckConstraint("count > 0", name=op.f("ck_ledger_count")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
        comment="Who holds what from when to when, base units of all pods together. Usage = sum of open rows.",
    )
    op.create_index(
        "ix_ledger_closed", "ledger", ["closed"], unique=False, postgresql_where=sa.text("closed IS NOT NULL")
    )
    op.create_index("ix_ledger_uid", "ledger", ["uid"], unique=False)
    op.create_index(
        "uq_ledger_open",
        "ledger",
        ["uid", "pod_set"],
        unique=True,
        postgresql_where=sa.text("closed IS NULL"),
    )
    op.create_table(
        "queue",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("parent_id", sa.BigInteger(), nullable=True),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("policy", postgresql.JSONB(), nullable=False),
        sa.Column("namespaces", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("managed_by", sa.Text(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("(parent_id IS NULL) = (path = 'root')", name=op.f("ck_queue_one_root")),
        sa.CheckConstraint("managed_by IN ('api', 'crd', 'file')", name=op.f("ck_queue_managed_by")),
        sa.CheckConstraint("managed_by IS NOT NULL OR path = 'root'", name=op.f("ck_queue_owned")),
        sa.CheckConstraint("state IN ('open', 'held', 'draining')", name=op.f("ck_queue_state")),
        sa.CheckConstraint("char_length(path) <= 63", name=op.f("ck_queue_path_length")),
        sa.CheckConstraint("weight > 0", name=op.f("ck_queue_weight")),
        sa.ForeignKeyConstraint(["parent_id"], ["queue.id"], name=op.f("fk_queue_parent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue")),
        sa.UniqueConstraint("path", name=op.f("uq_queue_path")),
        comment="One row per queue. A root that nobody has written yet has no writer.",
    )
    op.create_index(op.f("ix_queue_parent_id"), "queue", ["parent_id"], unique=False)
    op.create_table(
        "topology",
        sa.Column("id", sa.SmallInteger(), server_default=sa.text("1"), autoincrement=False, nullable=False),
        sa.Column("levels", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("managed_by", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("managed_by IN ('api', 'crd', 'file')", name=op.f("ck_topology_managed_by")),
        sa.CheckConstraint("id = 1", name=op.f("ck_topology_singleton")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_topology")),
    )
    op.create_table(
        "workload",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("preemptible", sa.Boolean(), nullable=False),
        sa.Column("submitted", sa.DateTime(timezone=True), nullable=False),
        sa.Column("required", sa.Text(), nullable=True),
        sa.Column("preferred", sa.Text(), nullable=True),
        sa.Column("max_runtime", sa.Double(), nullable=True),
        sa.Column("estimate", sa.Double(), nullable=True),
        sa.Column("hold", sa.Boolean(), nullable=False),
        sa.Column("pod_sets", postgresql.JSONB(), nullable=False),
        sa.Column("template", postgresql.JSONB(), nullable=False),
        sa.Column("resource_version", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("admission_id", sa.Uuid(), nullable=True),
        sa.Column("token", sa.Text(), nullable=True),
        sa.Column("explanation", postgresql.JSONB(none_as_null=True), nullable=True),
        sa.Column("reason_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("admitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("landed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "avoid",
            postgresql.JSONB(none_as_null=True),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("first", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint(
            "(admission_id IS NULL) OR state NOT IN ('Queued', 'Held')",
            name=op.f("ck_workload_waiting_is_not_admitted"),
        ),
        sa.CheckConstraint(
            "(finished_at IS NOT NULL) = (state IN ('Succeeded', 'Failed'))",
            name=op.f("ck_workload_finished_at"),
        ),
        sa.CheckConstraint(
            "state IN ('Queued', 'Held', 'Admitted', 'Placing', 'Running', 'Evicting', 'Succeeded', 'Failed')",
            name=op.f("ck_workload_state"),
        ),
        sa.CheckConstraint(f"token IN ({TOKENS})", name=op.f("ck_workload_token")),
        sa.CheckConstraint("attempt > 0", name=op.f("ck_workload_attempt")),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_workload")),
        comment="One row per job seen, by the job's uid. `deleted_at`: the job object is gone.",
    )
    op.create_index(
        "ix_workload_ended",
        "workload",
        [sa.literal_column("coalesce(deleted_at, finished_at)")],
        unique=False,
        postgresql_where=sa.text("state IN ('Succeeded', 'Failed') OR deleted_at IS NOT NULL"),
    )
    op.create_index(
        "ix_workload_live",
        "workload",
        ["queue", "submitted"],
        unique=False,
        postgresql_where=sa.text("state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL"),
    )
    op.create_index(
        "ix_workload_reference", "workload", ["namespace", "kind", "name", "submitted"], unique=False
    )
    op.create_index("ix_workload_submitted", "workload", ["submitted", "uid"], unique=False)
    op.create_table(
        "admission",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("assignments", postgresql.JSONB(), nullable=False),
        sa.Column("domains", postgresql.JSONB(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("landed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_cause", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["uid"], ["workload.uid"], name=op.f("fk_admission_uid"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_admission")),
        comment="A workload is admitted once per attempt. `ended_at`: finished, or back in its queue.",
    )
    op.create_index("uq_admission_attempt", "admission", ["uid", "attempt"], unique=True)
    op.create_index(
        "uq_admission_open", "admission", ["uid"], unique=True, postgresql_where=sa.text("ended_at IS NULL")
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(["revision"], ["changeset.revision"], name=op.f("fk_audit_revision")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        comment="Who did what and why: changesets, overrides, repairs of the ledger. Append only.",
    )
    op.create_table(
        "bond",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("assignments", postgresql.JSONB(), nullable=False),
        sa.Column("victims", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["uid"], ["workload.uid"], name=op.f("fk_bond_uid"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_bond")),
        comment="Place and quota held for a gang while its victims leave.",
    )
    op.create_table(
        "outbox",
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("admission_id", sa.Uuid(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=True),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("patch", postgresql.JSONB(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("resource_version", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('admit', 'evict', 'withdraw')", name=op.f("ck_outbox_kind")),
        sa.CheckConstraint(
            "outcome IN ('applied', 'gone', 'conflict', 'invalid', 'withdrawn')",
            name=op.f("ck_outbox_outcome"),
        ),
        sa.CheckConstraint("(done_at IS NULL) = (outcome IS NULL)", name=op.f("ck_outbox_done")),
        sa.ForeignKeyConstraint(["uid"], ["workload.uid"], name=op.f("fk_outbox_uid"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_outbox")),
        comment="What is committed and must reach the API server. An admission has one open effect of a kind.",
    )
    op.create_index(
        "ix_outbox_done", "outbox", ["done_at"], unique=False, postgresql_where=sa.text("done_at IS NOT NULL")
    )
    op.create_index(op.f("ix_outbox_uid"), "outbox", ["uid"], unique=False)
    op.create_index(
        "ix_outbox_undone", "outbox", ["seq"], unique=False, postgresql_where=sa.text("done_at IS NULL")
    )
    op.create_index(
        "uq_outbox_effect",
        "outbox",
        ["admission_id", "kind"],
        unique=True,
        postgresql_where=sa.text("done_at IS NULL"),
    )
    op.create_table(
        "queue_quota",
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("flavor", sa.Text(), nullable=True),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("guaranteed", sa.BigInteger(), nullable=True),
        sa.Column("limit", sa.BigInteger(), nullable=True),
        sa.Column("lend", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            'guaranteed >= 0 AND "limit" >= 0 AND lend >= 0', name=op.f("ck_queue_quota_not_negative")
        ),
        sa.ForeignKeyConstraint(
            ["queue_id"], ["queue.id"], name=op.f("fk_queue_quota_queue_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("queue_id", "position", name=op.f("pk_queue_quota")),
        comment="Base units; NULL = not given. `position` keeps the order in which flavors are tried.",
    )
    op.create_index(
        "uq_queue_quota_account",
        "queue_quota",
        ["queue_id", "flavor", "resource"],
        unique=True,
        postgresql_nulls_not_distinct=True,
    )
    op.create_table(
        "reason_transition",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("from_token", sa.Text(), nullable=True),
        sa.Column("token", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("params", postgresql.JSONB(), nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(f"from_token IN ({TOKENS})", name=op.f("ck_reason_transition_from_token")),
        sa.CheckConstraint(f"token IN ({TOKENS})", name=op.f("ck_reason_transition_token")),
        sa.ForeignKeyConstraint(
            ["uid"], ["workload.uid"], name=op.f("fk_reason_transition_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reason_transition")),
        comment="Each change of a workload's primary reason. `token` NULL: it stopped waiting.",
    )
    op.create_index("ix_reason_transition_at", "reason_transition", ["at"], unique=False)
    op.create_index("ix_reason_transition_uid", "reason_transition", ["uid", "id"], unique=False)
    op.create_table(
        "reservation",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("assignments", postgresql.JSONB(), nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["uid"], ["workload.uid"], name=op.f("fk_reservation_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_reservation")),
        comment="Capacity held from `start` for a gang that is blocked by capacity alone.",
    )

    # Rows that exist once and are only ever updated, and the root of the tree, which nobody has written yet.
    op.execute("INSERT INTO configuration (id) VALUES (1)")
    op.execute("INSERT INTO leader (id) VALUES (1)")
    op.execute(
        "INSERT INTO queue (path, weight, state, policy, namespaces, revision) "
        "VALUES ('root', 1, 'open', '{}', '{}', 0)"
    )


def downgrade() -> None:
    for table in (
        "reservation",
        "reason_transition",
        "queue_quota",
        "outbox",
        "bond",
        "audit",
        "admission",
        "workload",
        "topology",
        "queue",
        "ledger",
        "leader",
        "flavor",
        "event",
        "cycle",
        "configuration",
        "changeset",
    ):
        op.drop_table(table)

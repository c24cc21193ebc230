"""Workloads, what they hold, and what is still to be done to them."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store.columns import document, moment, one_of, stamped
from queuer.store.tables.base import metadata
from queuer.store.tables.words import Barred, CommandOutcome, CommandVerb, EntryKind, Outcome

workload = Table(
    "workload",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("preemptible", Boolean, nullable=False),
    moment("submitted"),
    Column("required", Text),
    Column("preferred", Text),
    Column("max_runtime", Double),
    Column("estimate", Double),
    Column("hold", Boolean, nullable=False),
    Column("pod_sets", JSONB, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    Column("admission_id", Uuid),
    Column("token", Text),
    document("explanation", None),
    moment("reason_since", nullable=True),
    moment("admitted_at", nullable=True),
    moment("landed_at", nullable=True),
    moment("finished_at", nullable=True),
    moment("deleted_at", nullable=True),
    document("avoid"),
    Column("first", Boolean, nullable=False, server_default=text("false")),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    moment("rest", nullable=True),
    Column("barred", Text),
    document("override", None),
    one_of("state", State),
    one_of("token", Token),
    one_of("barred", Barred),
    CheckConstraint("attempt > 0", name="attempt"),
    CheckConstraint(
        "(admission_id IS NULL) OR state NOT IN ('Queued', 'Held')", name="waiting_is_not_admitted"
    ),
    CheckConstraint("(finished_at IS NOT NULL) = (state IN ('Succeeded', 'Failed'))", name="finished_at"),
    Index(
        "ix_workload_live",
        "queue",
        "submitted",
        postgresql_where=text("state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL"),
    ),
    Index("ix_workload_submitted", "submitted", "uid"),
    Index("ix_workload_namespace", "namespace", "submitted", "uid"),
    Index("ix_workload_queue", "queue", "submitted", "uid"),
    Index("ix_workload_user", "user_name", "submitted", "uid"),
    Index("ix_workload_unsuccessful", "submitted", "uid", postgresql_where=text("state <> 'Succeeded'")),
    Index("ix_workload_reference", "namespace", "name", "submitted"),
    Index(
        "ix_workload_ended",
        text("coalesce(deleted_at, finished_at)"),
        postgresql_where=text("state IN ('Succeeded', 'Failed') OR deleted_at IS NOT NULL"),
    ),
    Index("ix_workload_finished_at", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
    comment="One row per job seen, by the job's uid. `deleted_at`: the job object is gone.",
)

admission = Table(
    "admission",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("uid", Text, ForeignKey("workload.uid", ondelete="CASCADE"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("cycle", BigInteger, nullable=False),
    Column("assignments", JSONB, nullable=False),
    Column("domains", JSONB, nullable=False),
    Column("hosts", JSONB),  # {pod set: {node: pods}} when all of them ran; `assignments` are the plan
    moment("at"),
    moment("landed_at", nullable=True),
    moment("ended_at", nullable=True),
    Column("end_cause", Text),
    Column("hit", Boolean),  # started inside the range that it was last told; NULL = it was told none
    Index("ix_admission_told", "at", postgresql_where=text("hit IS NOT NULL")),
    Index("uq_admission_attempt", "uid", "attempt", unique=True),
    Index("ix_admission_at", "at"),
    Index("uq_admission_open", "uid", unique=True, postgresql_where=text("ended_at IS NULL")),
    comment="A workload is admitted once per attempt. `ended_at`: finished, or back in its queue.",
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uid", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("queue", Text, nullable=False),
    Column("pod_set", Text, nullable=False),
    Column("flavor", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("amounts", JSONB, nullable=False),
    moment("opened"),
    moment("closed", nullable=True),
    CheckConstraint("count > 0", name="count"),
    CheckConstraint("closed >= opened", name="interval"),
    CheckConstraint("jsonb_typeof(amounts) = 'object'", name="amounts"),
    Index("uq_ledger_open", "uid", "pod_set", unique=True, postgresql_where=text("closed IS NULL")),
    Index("ix_ledger_uid", "uid"),
    Index("ix_ledger_closed", "closed", postgresql_where=text("closed IS NOT NULL")),
    comment="Who holds what from when to when, base units of all pods together. Usage = sum of open rows.",
)

outbox = Table(
    "outbox",
    metadata,
    Column("seq", BigInteger, Identity(always=True), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("uid", Text, ForeignKey("workload.uid", ondelete="CASCADE"), nullable=False, index=True),
    Column("admission_id", Uuid, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("cycle", BigInteger),
    Column("patch", JSONB, nullable=False),
    stamped("at"),
    moment("done_at", nullable=True),
    Column("outcome", Text),
    Column("resource_version", Text),
    Column("message", Text),
    one_of("kind", EntryKind),
    one_of("outcome", Outcome),
    CheckConstraint("(done_at IS NULL) = (outcome IS NULL)", name="done"),
    Index("uq_outbox_effect", "admission_id", "kind", unique=True, postgresql_where=text("done_at IS NULL")),
    Index("ix_outbox_undone", "seq", postgresql_where=text("done_at IS NULL")),
    Index("ix_outbox_done", "done_at", postgresql_where=text("done_at IS NOT NULL")),
    comment="What is committed and must reach the API server. An admission has one open effect of a kind.",
)

command = Table(
    "command",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    stamped("at"),
    moment("due"),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("uid", Text, ForeignKey("workload.uid", ondelete="CASCADE"), nullable=False, index=True),
    Column("administers", Text),
    document("arguments"),
    Column("reason", Text, nullable=False),
    moment("done_at", nullable=True),
    Column("outcome", Text),
    Column("message", Text),
    one_of("verb", CommandVerb),
    one_of("outcome", CommandOutcome),
    CheckConstraint("(done_at IS NULL) = (outcome IS NULL)", name="done"),
    Index("ix_command_undone", "id", postgresql_where=text("done_at IS NULL")),
    Index("ix_command_done", "done_at", postgresql_where=text("done_at IS NOT NULL")),
    comment="What the leader is to do to a workload, from `due` on. `administers`: its queue, if the actor does.",
)

bond = Table(
    "bond",
    metadata,
    Column("uid", Text, ForeignKey("workload.uid", ondelete="CASCADE"), primary_key=True),
    Column("assignments", JSONB, nullable=False),
    Column("victims", ARRAY(Text), nullable=False),
    moment("deadline"),
    comment="Place and quota held for a gang while its victims leave.",
)

reservation = Table(
    "reservation",
    metadata,
    Column("uid", Text, ForeignKey("workload.uid", ondelete="CASCADE"), primary_key=True),
    Column("assignments", JSONB, nullable=False),
    moment("start"),
    moment("expires"),
    comment="Capacity held from `start` for a gang that is blocked by capacity alone.",
)

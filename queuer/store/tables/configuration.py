"""Queues, flavors and topology, how they came to be so, and who asked."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from queuer.domain.queue import ManagedBy, QueueState
from queuer.store.tables.base import document, metadata, moment, one_of, singleton, stamped
from queuer.store.tables.words import DraftState, Effect

configuration = Table(
    "configuration",
    metadata,
    *singleton(),
    Column("revision", BigInteger, nullable=False, server_default=text("0")),
    comment="Revision of queues, flavors and topology together; its row lock orders all changesets.",
)

queue = Table(
    "queue",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("parent_id", BigInteger, ForeignKey("queue.id"), index=True),
    Column("path", Text, nullable=False, unique=True),
    Column("weight", Double, nullable=False),
    Column("state", Text, nullable=False),
    Column("policy", JSONB, nullable=False),
    document("access"),
    Column("namespaces", ARRAY(Text), nullable=False),
    Column("routing", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("managed_by", Text),
    Column("revision", BigInteger, nullable=False),
    stamped("created_at"),
    one_of("state", QueueState),
    one_of("managed_by", ManagedBy),
    CheckConstraint("weight > 0", name="weight"),
    CheckConstraint("char_length(path) <= 63", name="path_length"),
    CheckConstraint("(parent_id IS NULL) = (path = 'root')", name="one_root"),
    CheckConstraint("managed_by IS NOT NULL OR path = 'root'", name="owned"),
    comment="One row per queue. A root that nobody has written yet has no writer.",
)

queue_quota = Table(
    "queue_quota",
    metadata,
    Column("queue_id", BigInteger, ForeignKey("queue.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("flavor", Text),
    Column("resource", Text, nullable=False),
    Column("guaranteed", BigInteger),
    Column("limit", BigInteger),
    Column("lend", BigInteger),
    CheckConstraint('guaranteed >= 0 AND "limit" >= 0 AND lend >= 0', name="not_negative"),
    Index(
        "uq_queue_quota_account",
        "queue_id",
        "flavor",
        "resource",
        unique=True,
        postgresql_nulls_not_distinct=True,
    ),
    comment="Base units; NULL = not given. `position` keeps the order in which flavors are tried.",
)

flavor = Table(
    "flavor",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("node_labels", JSONB, nullable=False),
    Column("tolerations", JSONB, nullable=False),
    Column("managed_by", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    one_of("managed_by", ManagedBy),
    comment="A node belongs to the first that matches, by position, then name.",
)

topology = Table(
    "topology",
    metadata,
    *singleton(),
    Column("levels", ARRAY(Text), nullable=False),
    Column("managed_by", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    one_of("managed_by", ManagedBy),
)

changeset = Table(
    "changeset",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    stamped("at"),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("writer", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("changes", JSONB, nullable=False),
    Column("reverts", BigInteger, ForeignKey("changeset.revision")),
    one_of("writer", ManagedBy),
    comment="Applied changes of the configuration: each names an object with its form before and after.",
)

draft = Table(
    "draft",
    metadata,
    Column("id", Uuid, primary_key=True),
    stamped("at"),
    moment("expires"),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("writer", Text, nullable=False),
    Column("root", Text, nullable=False),
    Column("base", BigInteger, nullable=False),
    Column("reverts", BigInteger, ForeignKey("changeset.revision")),
    Column("changes", JSONB, nullable=False),
    Column("report", JSONB, nullable=False),
    Column("effect", Text, nullable=False),
    Column("evict_after", Double),
    Column("state", Text, nullable=False, server_default=text("'planned'")),
    Column("revision", BigInteger, ForeignKey("changeset.revision")),
    Column("request", Text),
    Column("applied_by", Text),
    one_of("writer", ManagedBy),
    one_of("effect", Effect),
    one_of("state", DraftState),
    CheckConstraint("(state = 'applied') = (revision IS NOT NULL)", name="applied"),
    Index("ix_draft_at", "at"),
    Index("ix_draft_applied_by_request", text("split_part(applied_by, ':', 1)"), unique=True),
    Index("ix_draft_request", text("split_part(request, ':', 1)"), unique=True),
    comment="Planned changesets: what they change, and what was told of it. None is applied after `expires`.",
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    stamped("at"),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("revision", BigInteger, ForeignKey("changeset.revision")),
    document("detail"),
    Index("ix_audit_at", "at", postgresql_where=text("revision IS NULL")),
    comment="Who did what and why: changesets, overrides, repairs of the ledger. Append only.",
)

session = Table(
    "session",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("name", Text, nullable=False),
    Column("groups", ARRAY(Text), nullable=False),
    stamped("began"),
    moment("expires"),
    Index("ix_session_expires", "expires"),
    comment="Browsers that logged in. `digest`: SHA-256 of the cookie. Delete a row to log out.",
)

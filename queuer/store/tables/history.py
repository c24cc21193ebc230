"""Decisions, events and use over time; who leads, and that it lives."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
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

from queuer.domain.assignments import SolveStatus
from queuer.store.tables.base import document, metadata, moment, one_of, singleton

cycle = Table(
    "cycle",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    moment("started_at"),
    moment("finished_at"),
    Column("trigger", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("admitted", Integer, nullable=False),
    Column("evicted", Integer, nullable=False),
    Column("waiting", Integer, nullable=False),
    document("stats"),
    document("capacity"),
    one_of("status", SolveStatus),
    Index("ix_cycle_started_at", "started_at"),
    Index(
        "ix_cycle_moved",
        "started_at",
        postgresql_include=["admitted", "evicted"],
        postgresql_where=text("admitted > 0 OR evicted > 0"),
    ),
    comment="One row per committed decision. `capacity`: {flavor: {resource: allocatable}}, base units.",
)

event = Table(
    "event",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    moment("at"),
    Column("type", Text, nullable=False),
    Column("uid", Text),
    Column("queue", Text),
    document("data"),
    Index("ix_event_uid", "uid", "id", postgresql_where=text("uid IS NOT NULL")),
    Index("ix_event_at", "at"),
    Index("ix_event_evicting", "at", postgresql_where=text("data->>'to' = 'Evicting'")),
    Index("ix_event_evicting_uid", "uid", "id", postgresql_where=text("data->>'to' = 'Evicting'")),
    comment="What happened. Ids rise in commit order, so a reader may resume after the last it has seen.",
)

reason_transition = Table(
    "reason_transition",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uid", Text, ForeignKey("workload.uid", ondelete="CASCADE"), nullable=False),
    moment("at"),
    Column("from_token", Text),
    Column("token", Text),
    Column("text", Text, nullable=False),
    Column("params", JSONB, nullable=False),
    Column("cycle", BigInteger),
    Index("ix_reason_transition_uid", "uid", "id"),
    Index("ix_reason_transition_at", "at"),
    comment="Each change of a workload's primary reason. `token` NULL: it stopped waiting.",
)

leader = Table(
    "leader",
    metadata,
    *singleton(),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("term", Uuid),
    Column("holder", Text, nullable=False, server_default=text("''")),
    moment("since", nullable=True),
    comment="The epoch and the random id of the term that every write of a controller must carry.",
)

stored_cycle = Table(
    "stored_cycle",
    metadata,
    *singleton(),
    Column("cycle", BigInteger, nullable=False),
    moment("at"),
    Column("seed", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    comment="What the newest decision was given and answered, for whoever asks why a workload waits.",
)

heartbeat = Table(
    "heartbeat",
    metadata,
    *singleton(),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("phase", Text, nullable=False),
    moment("at"),
    moment("round_at"),
    moment("away_at", nullable=True),
    Column("unguarded", Text),
    Column("cycle", BigInteger),
    moment("cycle_at", nullable=True),
    Column("cycle_seconds", Double),
    Column("waiting", Integer),
    Column("status", Text),
    one_of("status", SolveStatus),
    comment="That the leader is there, when its loop last went round, and its last cycle.",
)

usage_rollup = Table(
    "usage_rollup",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("seconds", Integer, primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("waiting", Integer, nullable=False),
    Column("admitted", Integer, nullable=False),
    Column("amounts", JSONB, nullable=False),
    CheckConstraint("seconds IN (60, 3600)", name="seconds"),
    Index("ix_usage_rollup_seconds_at", "seconds", "at"),
    comment="Usage over time, a row a queue and minute or hour. `amounts`: accounts, as `usage.Amounts` has them.",
)

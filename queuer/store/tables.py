"""The schema, in one place. Migrations build the same thing; a test compares the two.

Rules: no extension; states and tokens are text with a CHECK that lists the words; amounts are bigint base units;
times are timestamptz; what grows has a retention rule (`queuer.store.retention`). Job facts that no query asks for
are jsonb. `ledger` has no foreign key: the book outlives the jobs in it.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from queuer.domain.queue import ManagedBy, QueueState
from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store.columns import document, moment, one_of, singleton, stamped

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

ENDED = (State.SUCCEEDED, State.FAILED)
SOLVE_STATUSES = ("GREEDY", "OPTIMAL", "FEASIBLE", "FAILED")
"""Words of `queuer.solver.records.SolveStatus`; the store does not import the solver, a test compares them."""


class EntryKind(StrEnum):
    """What an outbox entry does to the job. `withdraw` takes back an admission that never reached it."""

    ADMIT = "admit"
    EVICT = "evict"
    WITHDRAW = "withdraw"


class Barred(StrEnum):
    """Why a waiting workload is put before no decision: what it asks for is wrong; it came to a queue that drains; it
    is beyond `maxPending`.
    """

    MISCONFIGURED = "misconfigured"
    DRAINING = "draining"
    BEYOND = "beyond"


class Outcome(StrEnum):
    """How an outbox entry ended: patched; object gone (404); stale (409); refused (422); no longer wanted."""

    APPLIED = "applied"
    GONE = "gone"
    CONFLICT = "conflict"
    INVALID = "invalid"
    WITHDRAWN = "withdrawn"


class Effect(StrEnum):
    """What becomes of running work where a limit is cut below its use. `drain`: it stays, nothing new starts; `refuse`:
    the cut is not made; `evict`: it goes until the limit holds.
    """

    DRAIN = "drain"
    REFUSE = "refuse"
    EVICT = "evict"


class DraftState(StrEnum):
    """What became of a planned changeset."""

    PLANNED = "planned"
    APPLIED = "applied"
    DISCARDED = "discarded"


class CommandVerb(StrEnum):
    """What is done to a workload by command."""

    HOLD = "hold"
    RELEASE = "release"
    EVICT = "evict"
    PRIORITISE = "prioritise"


class CommandOutcome(StrEnum):
    """How a command ended: carried out, refused with a sentence, or there was no live workload any more."""

    DONE = "done"
    REFUSED = "refused"
    GONE = "gone"


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
    Column("placement", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
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
    one_of("writer", ManagedBy),
    one_of("effect", Effect),
    one_of("state", DraftState),
    CheckConstraint("(state = 'applied') = (revision IS NOT NULL)", name="applied"),
    Index("ix_draft_at", "at"),
    comment="Planned changesets: what they change, and what was told of it. None is applied after `expires`.",
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    stamped("at"),
    Column("fingerprint", Text, nullable=False),
    Column("status", Integer),
    document("headers"),
    Column("body", LargeBinary),
    CheckConstraint("(status IS NULL) = (body IS NULL)", name="answered"),
    Index("ix_idempotency_at", "at"),
    comment="Requests by Idempotency-Key, with the answer once there is one.",
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
    one_of("status", SOLVE_STATUSES),
    Index("ix_cycle_started_at", "started_at"),
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
    one_of("from_token", Token),
    one_of("token", Token),
    Index("ix_reason_transition_uid", "uid", "id"),
    Index("ix_reason_transition_at", "at"),
    comment="Each change of a workload's primary reason. `token` NULL: it stopped waiting.",
)

leader = Table(
    "leader",
    metadata,
    *singleton(),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("holder", Text, nullable=False, server_default=text("''")),
    moment("since", nullable=True),
    comment="The epoch that every write of a controller must carry.",
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
    Column("cycle", BigInteger),
    moment("cycle_at", nullable=True),
    Column("cycle_seconds", Double),
    Column("waiting", Integer),
    Column("status", Text),
    one_of("status", SOLVE_STATUSES),
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

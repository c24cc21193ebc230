"""The schema of the first release, in SQL: configuration, workloads, history.

Until that release the schema is changed here; afterwards each change is a migration of its own.
Revision: 0001, the first
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

CONFIGURATION = """
CREATE TABLE changeset (
    revision bigint CONSTRAINT pk_changeset PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    source text NOT NULL,
    writer text NOT NULL CONSTRAINT ck_changeset_writer CHECK (writer IN ('api', 'crd', 'file')),
    reason text NOT NULL,
    changes jsonb NOT NULL,
    reverts bigint CONSTRAINT fk_changeset_reverts REFERENCES changeset (revision)
);
COMMENT ON TABLE changeset
    IS 'Applied changes of the configuration: each names an object with its form before and after.';

CREATE TABLE configuration (
    id smallint DEFAULT 1 CONSTRAINT pk_configuration PRIMARY KEY
        CONSTRAINT ck_configuration_singleton CHECK (id = 1),
    revision bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE configuration
    IS 'Revision of queues, flavors and topology together; its row lock orders all changesets.';

CREATE TABLE queue (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_queue PRIMARY KEY,
    parent_id bigint CONSTRAINT fk_queue_parent_id REFERENCES queue (id),
    path text NOT NULL CONSTRAINT uq_queue_path UNIQUE,
    weight double precision NOT NULL CONSTRAINT ck_queue_weight CHECK (weight > 0),
    state text NOT NULL CONSTRAINT ck_queue_state CHECK (state IN ('open', 'held', 'draining')),
    policy jsonb NOT NULL,
    access jsonb NOT NULL DEFAULT '{}',
    namespaces text[] NOT NULL,
    routing jsonb NOT NULL DEFAULT '[]',
    managed_by text CONSTRAINT ck_queue_managed_by CHECK (managed_by IN ('api', 'crd', 'file')),
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ck_queue_path_length CHECK (char_length(path) <= 63),
    CONSTRAINT ck_queue_one_root CHECK ((parent_id IS NULL) = (path = 'root')),
    CONSTRAINT ck_queue_owned CHECK (managed_by IS NOT NULL OR path = 'root')
);
CREATE INDEX ix_queue_parent_id ON queue (parent_id);
COMMENT ON TABLE queue IS 'One row per queue. A root that nobody has written yet has no writer.';

CREATE TABLE queue_quota (
    queue_id bigint NOT NULL CONSTRAINT fk_queue_quota_queue_id REFERENCES queue (id) ON DELETE CASCADE,
    position integer NOT NULL,
    flavor text,
    resource text NOT NULL,
    guaranteed bigint,
    "limit" bigint,
    lend bigint,
    CONSTRAINT pk_queue_quota PRIMARY KEY (queue_id, position),
    CONSTRAINT ck_queue_quota_not_negative CHECK (guaranteed >= 0 AND "limit" >= 0 AND lend >= 0)
);
CREATE UNIQUE INDEX uq_queue_quota_account ON queue_quota (queue_id, flavor, resource) NULLS NOT DISTINCT;
COMMENT ON TABLE queue_quota
    IS 'Base units; NULL = not given. `position` keeps the order in which flavors are tried.';

CREATE TABLE flavor (
    name text CONSTRAINT pk_flavor PRIMARY KEY,
    position integer NOT NULL,
    node_labels jsonb NOT NULL,
    tolerations jsonb NOT NULL,
    managed_by text NOT NULL CONSTRAINT ck_flavor_managed_by CHECK (managed_by IN ('api', 'crd', 'file')),
    revision bigint NOT NULL
);
COMMENT ON TABLE flavor IS 'A node belongs to the first that matches, by position, then name.';

CREATE TABLE topology (
    id smallint DEFAULT 1 CONSTRAINT pk_topology PRIMARY KEY CONSTRAINT ck_topology_singleton CHECK (id = 1),
    levels text[] NOT NULL,
    managed_by text NOT NULL CONSTRAINT ck_topology_managed_by CHECK (managed_by IN ('api', 'crd', 'file')),
    revision bigint NOT NULL
);

CREATE TABLE draft (
    id uuid CONSTRAINT pk_draft PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    expires timestamptz NOT NULL,
    actor text NOT NULL,
    source text NOT NULL,
    writer text NOT NULL CONSTRAINT ck_draft_writer CHECK (writer IN ('api', 'crd', 'file')),
    root text NOT NULL,
    base bigint NOT NULL,
    reverts bigint CONSTRAINT fk_draft_reverts REFERENCES changeset (revision),
    changes jsonb NOT NULL,
    report jsonb NOT NULL,
    effect text NOT NULL CONSTRAINT ck_draft_effect CHECK (effect IN ('drain', 'refuse', 'evict')),
    evict_after double precision,
    state text NOT NULL DEFAULT 'planned'
        CONSTRAINT ck_draft_state CHECK (state IN ('planned', 'applied', 'discarded')),
    revision bigint CONSTRAINT fk_draft_revision REFERENCES changeset (revision),
    request text,
    applied_by text,
    CONSTRAINT ck_draft_applied CHECK ((state = 'applied') = (revision IS NOT NULL))
);
CREATE INDEX ix_draft_at ON draft (at);
CREATE UNIQUE INDEX ix_draft_applied_by_request ON draft (split_part(applied_by, ':', 1));
CREATE UNIQUE INDEX ix_draft_request ON draft (split_part(request, ':', 1));
COMMENT ON TABLE draft
    IS 'Planned changesets: what they change, and what was told of it. None is applied after `expires`.';

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_audit PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    source text NOT NULL,
    action text NOT NULL,
    reason text NOT NULL,
    revision bigint CONSTRAINT fk_audit_revision REFERENCES changeset (revision),
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX ix_audit_at ON audit (at) WHERE revision IS NULL;
COMMENT ON TABLE audit
    IS 'Who did what and why: changesets, commands, repairs of the ledger. Append only, but for a command''s refusal.';

CREATE TABLE session (
    digest bytea CONSTRAINT pk_session PRIMARY KEY,
    name text NOT NULL,
    groups text[] NOT NULL,
    began timestamptz NOT NULL DEFAULT now(),
    expires timestamptz NOT NULL
);
CREATE INDEX ix_session_expires ON session (expires);
COMMENT ON TABLE session
    IS 'Browsers that logged in. `digest`: SHA-256 of the cookie. Delete a row to log out.';
"""

WORKLOADS = """
CREATE TABLE workload (
    uid text CONSTRAINT pk_workload PRIMARY KEY,
    kind text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    queue text NOT NULL,
    user_name text NOT NULL,
    priority integer NOT NULL,
    preemptible boolean NOT NULL,
    submitted timestamptz NOT NULL,
    required text,
    preferred text,
    max_runtime double precision,
    estimate double precision,
    hold boolean NOT NULL,
    pod_sets jsonb NOT NULL,
    state text NOT NULL CONSTRAINT ck_workload_state CHECK (state IN ('Queued', 'Held', 'Admitted', 'Placing',
        'Running', 'Evicting', 'Succeeded', 'Failed')),
    attempt integer NOT NULL DEFAULT 1 CONSTRAINT ck_workload_attempt CHECK (attempt > 0),
    admission_id uuid,
    token text,
    explanation jsonb,
    reason_since timestamptz,
    admitted_at timestamptz,
    landed_at timestamptz,
    finished_at timestamptz,
    deleted_at timestamptz,
    avoid jsonb NOT NULL DEFAULT '{}',
    first boolean NOT NULL DEFAULT false,
    failures integer NOT NULL DEFAULT 0,
    rest timestamptz,
    not_asked text CONSTRAINT ck_workload_not_asked
        CHECK (not_asked IN ('misconfigured', 'draining', 'over_max_pending')),
    override jsonb,
    CONSTRAINT ck_workload_waiting_is_not_admitted
        CHECK ((admission_id IS NULL) OR state NOT IN ('Queued', 'Held')),
    CONSTRAINT ck_workload_finished_at CHECK ((finished_at IS NOT NULL) = (state IN ('Succeeded', 'Failed')))
);
CREATE INDEX ix_workload_ended ON workload (coalesce(deleted_at, finished_at))
    WHERE state IN ('Succeeded', 'Failed') OR deleted_at IS NOT NULL;
CREATE INDEX ix_workload_finished_at ON workload (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX ix_workload_live ON workload (queue, submitted)
    WHERE state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL;
CREATE INDEX ix_workload_namespace ON workload (namespace, submitted, uid);
CREATE INDEX ix_workload_queue ON workload (queue, submitted, uid);
CREATE INDEX ix_workload_reference ON workload (namespace, name, submitted);
CREATE INDEX ix_workload_submitted ON workload (submitted, uid);
CREATE INDEX ix_workload_unsuccessful ON workload (submitted, uid) WHERE state <> 'Succeeded';
CREATE INDEX ix_workload_user ON workload (user_name, submitted, uid);
COMMENT ON TABLE workload IS 'One row per job seen, by the job''s uid. `deleted_at`: the job object is gone.';

CREATE TABLE admission (
    id uuid CONSTRAINT pk_admission PRIMARY KEY,
    uid text NOT NULL CONSTRAINT fk_admission_uid REFERENCES workload (uid) ON DELETE CASCADE,
    attempt integer NOT NULL,
    epoch bigint NOT NULL,
    cycle bigint NOT NULL,
    assignments jsonb NOT NULL,
    domains jsonb NOT NULL,
    hosts jsonb, -- {pod set: {node: pods}} when all of them ran; `assignments` are the plan
    at timestamptz NOT NULL,
    landed_at timestamptz,
    ended_at timestamptz,
    end_cause text,
    hit boolean -- started inside the range that it was last told; NULL = it was told none
);
CREATE INDEX ix_admission_at ON admission (at);
CREATE INDEX ix_admission_cycle ON admission (cycle);
CREATE INDEX ix_admission_told ON admission (at) WHERE hit IS NOT NULL;
CREATE UNIQUE INDEX uq_admission_attempt ON admission (uid, attempt);
CREATE UNIQUE INDEX uq_admission_open ON admission (uid) WHERE ended_at IS NULL;
COMMENT ON TABLE admission
    IS 'A workload is admitted once per attempt. `ended_at`: finished, or back in its queue.';

CREATE TABLE ledger (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_ledger PRIMARY KEY,
    uid text NOT NULL,
    attempt integer NOT NULL,
    queue text NOT NULL,
    pod_set text NOT NULL,
    flavor text NOT NULL,
    count integer NOT NULL CONSTRAINT ck_ledger_count CHECK (count > 0),
    amounts jsonb NOT NULL,
    opened timestamptz NOT NULL,
    closed timestamptz,
    CONSTRAINT ck_ledger_interval CHECK (closed >= opened),
    CONSTRAINT ck_ledger_amounts CHECK (jsonb_typeof(amounts) = 'object')
);
CREATE INDEX ix_ledger_closed ON ledger (closed) WHERE closed IS NOT NULL;
CREATE INDEX ix_ledger_uid ON ledger (uid);
CREATE UNIQUE INDEX uq_ledger_open ON ledger (uid, pod_set) WHERE closed IS NULL;
COMMENT ON TABLE ledger
    IS 'Who holds what from when to when, base units of all pods together. Usage = sum of open rows.';

CREATE TABLE outbox (
    seq bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_outbox PRIMARY KEY,
    kind text NOT NULL CONSTRAINT ck_outbox_kind CHECK (kind IN ('admit', 'evict', 'withdraw')),
    uid text NOT NULL CONSTRAINT fk_outbox_uid REFERENCES workload (uid) ON DELETE CASCADE,
    admission_id uuid NOT NULL,
    epoch bigint NOT NULL,
    cycle bigint,
    patch jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    done_at timestamptz,
    outcome text CONSTRAINT ck_outbox_outcome CHECK (outcome IN ('applied', 'gone', 'conflict', 'invalid',
        'withdrawn')),
    resource_version text,
    message text,
    CONSTRAINT ck_outbox_done CHECK ((done_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX ix_outbox_done ON outbox (done_at) WHERE done_at IS NOT NULL;
CREATE INDEX ix_outbox_uid ON outbox (uid);
CREATE INDEX ix_outbox_undone ON outbox (seq) WHERE done_at IS NULL;
CREATE UNIQUE INDEX uq_outbox_effect ON outbox (admission_id, kind) WHERE done_at IS NULL;
COMMENT ON TABLE outbox
    IS 'What is committed and must reach the API server. An admission has one open effect of a kind.';

CREATE TABLE command (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_command PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    due timestamptz NOT NULL,
    actor text NOT NULL,
    source text NOT NULL,
    verb text NOT NULL CONSTRAINT ck_command_verb CHECK (verb IN ('hold', 'release', 'evict', 'prioritise')),
    uid text NOT NULL CONSTRAINT fk_command_uid REFERENCES workload (uid) ON DELETE CASCADE,
    administers text,
    arguments jsonb NOT NULL DEFAULT '{}',
    reason text NOT NULL,
    done_at timestamptz,
    outcome text CONSTRAINT ck_command_outcome CHECK (outcome IN ('done', 'refused', 'gone')),
    message text,
    request text,
    CONSTRAINT ck_command_done CHECK ((done_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX ix_command_done ON command (done_at) WHERE done_at IS NOT NULL;
CREATE UNIQUE INDEX ix_command_request ON command (split_part(request, ':', 1), uid);
CREATE INDEX ix_command_uid ON command (uid);
CREATE INDEX ix_command_undone ON command (id) WHERE done_at IS NULL;
COMMENT ON TABLE command
    IS 'What the leader is to do to a workload, from `due` on. `administers`: its queue, if the actor does.';

CREATE TABLE bond (
    uid text CONSTRAINT pk_bond PRIMARY KEY
        CONSTRAINT fk_bond_uid REFERENCES workload (uid) ON DELETE CASCADE,
    assignments jsonb NOT NULL,
    victims text[] NOT NULL,
    deadline timestamptz NOT NULL
);
COMMENT ON TABLE bond IS 'Place and quota held for a gang while its victims leave.';

CREATE TABLE reservation (
    uid text CONSTRAINT pk_reservation PRIMARY KEY
        CONSTRAINT fk_reservation_uid REFERENCES workload (uid) ON DELETE CASCADE,
    assignments jsonb NOT NULL,
    start timestamptz NOT NULL,
    expires timestamptz NOT NULL
);
COMMENT ON TABLE reservation IS 'Capacity held from `start` for a gang that is blocked by capacity alone.';
"""

HISTORY = """
CREATE TABLE cycle (
    id bigint CONSTRAINT pk_cycle PRIMARY KEY,
    epoch bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    trigger text NOT NULL,
    status text NOT NULL
        CONSTRAINT ck_cycle_status CHECK (status IN ('GREEDY', 'OPTIMAL', 'FEASIBLE', 'FAILED')),
    admitted integer NOT NULL,
    evicted integer NOT NULL,
    waiting integer NOT NULL,
    stats jsonb NOT NULL DEFAULT '{}',
    capacity jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX ix_cycle_moved ON cycle (started_at) INCLUDE (admitted, evicted)
    WHERE admitted > 0 OR evicted > 0;
CREATE INDEX ix_cycle_started_at ON cycle (started_at);
COMMENT ON TABLE cycle
    IS 'One row per committed decision. `capacity`: {flavor: {resource: allocatable}}, base units.';

CREATE TABLE event (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_event PRIMARY KEY,
    at timestamptz NOT NULL,
    type text NOT NULL,
    uid text,
    queue text,
    data jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX ix_event_at ON event (at);
CREATE INDEX ix_event_evicting ON event (at) WHERE data->>'to' = 'Evicting';
CREATE INDEX ix_event_evicting_uid ON event (uid, id) WHERE data->>'to' = 'Evicting';
CREATE INDEX ix_event_uid ON event (uid, id) WHERE uid IS NOT NULL;
COMMENT ON TABLE event
    IS 'What happened. Ids rise in commit order, so a reader may resume after the last it has seen.';

CREATE TABLE reason_transition (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_reason_transition PRIMARY KEY,
    uid text NOT NULL CONSTRAINT fk_reason_transition_uid REFERENCES workload (uid) ON DELETE CASCADE,
    at timestamptz NOT NULL,
    from_token text,
    token text,
    text text NOT NULL,
    params jsonb NOT NULL,
    cycle bigint
);
CREATE INDEX ix_reason_transition_at ON reason_transition (at);
CREATE INDEX ix_reason_transition_uid ON reason_transition (uid, id);
COMMENT ON TABLE reason_transition
    IS 'Each change of a workload''s primary reason. `token` NULL: it stopped waiting.';

CREATE TABLE leader (
    id smallint DEFAULT 1 CONSTRAINT pk_leader PRIMARY KEY CONSTRAINT ck_leader_singleton CHECK (id = 1),
    epoch bigint NOT NULL DEFAULT 0,
    term uuid,
    holder text NOT NULL DEFAULT '',
    since timestamptz
);
COMMENT ON TABLE leader IS 'The epoch and the random id of the term that every write of a controller must carry.';

CREATE TABLE stored_cycle (
    id smallint DEFAULT 1 CONSTRAINT pk_stored_cycle PRIMARY KEY
        CONSTRAINT ck_stored_cycle_singleton CHECK (id = 1),
    cycle bigint NOT NULL,
    at timestamptz NOT NULL,
    seed bigint NOT NULL,
    body bytea NOT NULL
);
COMMENT ON TABLE stored_cycle
    IS 'What the newest decision was given and answered, for whoever asks why a workload waits.';

CREATE TABLE heartbeat (
    id smallint DEFAULT 1 CONSTRAINT pk_heartbeat PRIMARY KEY
        CONSTRAINT ck_heartbeat_singleton CHECK (id = 1),
    holder text NOT NULL,
    epoch bigint NOT NULL,
    phase text NOT NULL,
    at timestamptz NOT NULL,
    round_at timestamptz NOT NULL,
    away_at timestamptz,
    unguarded text,
    cycle bigint,
    cycle_at timestamptz,
    cycle_seconds double precision,
    waiting integer,
    status text CONSTRAINT ck_heartbeat_status CHECK (status IN ('GREEDY', 'OPTIMAL', 'FEASIBLE', 'FAILED'))
);
COMMENT ON TABLE heartbeat IS 'That the leader is there, when its loop last went round, and its last cycle.';

CREATE TABLE usage_rollup (
    queue text NOT NULL,
    seconds integer NOT NULL CONSTRAINT ck_usage_rollup_seconds CHECK (seconds IN (60, 3600)),
    at timestamptz NOT NULL,
    waiting integer NOT NULL,
    admitted integer NOT NULL,
    amounts jsonb NOT NULL,
    CONSTRAINT pk_usage_rollup PRIMARY KEY (queue, seconds, at)
);
CREATE INDEX ix_usage_rollup_seconds_at ON usage_rollup (seconds, at);
COMMENT ON TABLE usage_rollup
    IS 'Usage over time, a row a queue and minute or hour. `amounts`: accounts, as `usage.Amounts` has them.';
"""

# Rows that exist once and are only updated, and the root of the tree, which no writer owns yet.
ROWS = """
INSERT INTO configuration (id) VALUES (1);
INSERT INTO leader (id) VALUES (1);
INSERT INTO queue (path, weight, state, policy, namespaces, revision) VALUES ('root', 1, 'open', '{}', '{}', 0);
"""


def upgrade() -> None:
    for statements in (CONFIGURATION, WORKLOADS, HISTORY, ROWS):
        op.execute(statements)


def downgrade() -> None:
    op.execute("""
        DROP TABLE bond, reservation, command, outbox, ledger, admission, reason_transition, workload,
            event, cycle, stored_cycle, heartbeat, leader, usage_rollup,
            session, audit, draft, topology, flavor, queue_quota, queue, configuration, changeset
    """)

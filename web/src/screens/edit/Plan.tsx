/** What a changeset would do, or did: its fields, whom it concerns, and the way on. */

import { newKey } from "../../api/key";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { Failure, api, body } from "../../api/client";
import * as queries from "../../api/queries";
import type { Changeset, FieldError, Jobs } from "../../api/schema";
import { Ago } from "../../kit/Ago";
import { Chip } from "../../kit/Chip";
import { Command } from "../../kit/CopyAs";
import { Answer, Part, Trouble } from "../../kit/Panel";
import { Title } from "../../kit/Title";
import { demand, read, short } from "../../text/quantity";
import { subject } from "./document";

const LEAST_REASON = 10;

export function Plan() {
  const { id } = useParams({ from: "/edit/$id" });
  const query = useQuery(queries.changeset(id));
  return (
    <>
      {query.error && !query.data && <Title>Change {id}</Title>}
      <Answer query={query}>{(changeset) => <Shown of={changeset} />}</Answer>
    </>
  );
}

const TITLES: Record<Changeset["state"], string> = {
  planned: "This is planned",
  expired: "This plan is too old to be applied",
  discarded: "This plan was given up",
  applied: "This was applied",
};

function Shown({ of }: { of: Changeset }) {
  return (
    <>
      <header className="job-head">
        <Title>{TITLES[of.state]}</Title>
        <Chip word={of.state} />
        <span className="soft">
          by {of.actor}
          {of.applied ? (
            <>
              , <Ago at={of.applied} suffix=" ago" />
            </>
          ) : (
            of.planned && (
              <>
                , <Ago at={of.planned} suffix=" ago" />
              </>
            )
          )}
          {of.reason && `: ${of.reason}`}
        </span>
      </header>
      <Part title="What changes">
        <ul className="list">
          {of.changes.map((change) => (
            <li key={change.kind + change.name}>
              <Chip word={change.action} /> {change.text}
            </li>
          ))}
        </ul>
      </Part>
      {(of.state === "planned" || of.impact !== null) && <Consequences of={of} />}
      {of.state === "planned" ? <Decide of={of} /> : of.state === "applied" && <Revert of={of} />}
    </>
  );
}

function Consequences({ of }: { of: Changeset }) {
  const { impact, overLimit = [], reclaimable = [], states = [], victims } = of;
  // A cut below use is in both lists, and told with its figures.
  const warnings = unlike(of.warnings, of.reductions);
  const cuts = unlike(of.reductions, of.warnings);
  const evicted = impact?.evicted ?? { count: 0 };
  const title = of.state === "applied" ? "What was expected" : "What it means";
  const quiet =
    !warnings.length &&
    !cuts.length &&
    !overLimit.length &&
    !reclaimable.length &&
    !impact?.starts.count &&
    !evicted.count &&
    !impact?.unstartable.count &&
    !impact?.unstartableRunning?.count &&
    !impact?.unknown?.count &&
    !states.length;
  return (
    <Part
      title={title}
      beside={impact && <small>worked out by the decision itself on cycle {impact.cycle}; no promise</small>}
    >
      {of.impactMissing && <p className="trouble">{of.impactMissing}</p>}
      {quiet && <p>Nothing that runs or waits is touched.</p>}
      <ul className="list">
        {warnings.map((each) => (
          <li key={each.field + each.message}>
            <Chip word="warning" /> {subject(each)} {each.message}
            {each.hint && `: ${each.hint}`}
          </li>
        ))}
        {cuts.map((each) => (
          <li key={each.field + each.message}>
            <Chip word="warning" label="takes away" /> {subject(each)} {each.message}
          </li>
        ))}
        {overLimit.map((each) => (
          <li key={each.queue + each.resource}>
            <Chip word="warning" label="over limit" /> {each.queue} uses {read(each.used, each.resource)}{" "}
            {short(each.resource)}, {read(each.over, each.resource)} more than its new limit{" "}
            {read(each.limit, each.resource)}.{" "}
            {of.effect === "drain" && "Running jobs are kept; nothing new starts there until enough have ended."}
          </li>
        ))}
        {reclaimable.map((each) => (
          <li key={`r${each.queue}${each.flavor}${each.resource}`}>
            <Chip word="info" label="reclaimable" /> {read(each.amount, each.resource)} {short(each.resource)}
            {each.flavor && ` of ${each.flavor}`} more of the preemptible work of {each.queue} can be taken back.
          </li>
        ))}
        {states.map((each) => (
          <li key={`s${each.queue}`}>
            <Chip word={each.state} /> {each.text}
          </li>
        ))}
        {impact && impact.starts.count > 0 && (
          <Several of={impact.starts} words={evicted.count ? "would start, some after evictions" : "would start now"} />
        )}
        {evicted.count ? <Several of={evicted} words="would be evicted for them" /> : null}
        {impact && impact.unstartable.count > 0 && (
          <Several of={impact.unstartable} words="could never start any more" />
        )}
        {impact?.unstartableRunning?.count ? (
          <Several of={impact.unstartableRunning} words="that run now could never start again once they have left" />
        ) : null}
        {impact?.unknown?.count ? (
          <Several
            of={impact.unknown}
            words="came while the queue drained, and may start, too: nothing more is known"
          />
        ) : null}
        {victims && victims.count > 0 && (
          <Several
            of={victims}
            words={of.effect === "evict" ? "would be evicted" : "would have to go for the limits to hold"}
          />
        )}
      </ul>
    </Part>
  );
}

/** Those of a list that the other does not have. */
function unlike(these: readonly FieldError[] = [], others: readonly FieldError[] = []): FieldError[] {
  return these.filter((one) => !others.some((other) => one.field === other.field && one.message === other.message));
}

function Several({ of, words }: { of: Required<Jobs> | Jobs; words: string }) {
  const jobs = of.jobs ?? [];
  const count = of.count ?? 0;
  return (
    <li>
      <b>
        {count} {count === 1 ? "job" : "jobs"} {words}
      </b>{" "}
      ({demand(of.amounts ?? {})})
      {jobs.length > 0 && (
        <>
          :{" "}
          {jobs.map((job, index) => (
            <span key={job.uid}>
              {index > 0 && ", "}
              <Link to="/jobs/$uid" params={{ uid: job.uid }}>
                {job.namespace}/{job.name}
              </Link>
            </span>
          ))}
          {jobs.length < count && ` and ${count - jobs.length} more`}
        </>
      )}
    </li>
  );
}

function Decide({ of }: { of: Changeset }) {
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const key = useRef(newKey());
  const client = useQueryClient();
  const navigate = useNavigate();
  const id = of.id ?? "";
  const cuts = (of.reductions ?? []).length > 0;
  const apply = useMutation({
    mutationFn: () =>
      body(
        api.POST("/api/v1/changesets/{id}:apply", {
          params: { path: { id }, header: { "idempotency-key": key.current } },
          body: { reason },
        }),
      ),
    onSuccess: (applied) => {
      sessionStorage.removeItem(`queuer-draft-${of.root}`);
      void client.invalidateQueries();
      if (applied.revision != null)
        void navigate({ to: "/edit/$id", params: { id: String(applied.revision) }, replace: true });
    },
  });
  const discard = useMutation({
    mutationFn: () => body(api.POST("/api/v1/changesets/{id}:discard", { params: { path: { id } } })),
    onSuccess: () => void navigate({ to: "/edit", search: { root: of.root } }),
  });
  const hit = hurt(of);
  const lacking = (cuts && reason.trim().length < LEAST_REASON) || (hit !== undefined && typed !== hit);
  const moved = apply.error instanceof Failure && apply.error.status === 412;
  return (
    <section className="panel" aria-label="Apply">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          apply.mutate();
        }}
      >
        {cuts && <p>This takes something away, and needs a reason.</p>}
        <p>
          <label className="field">
            Reason {cuts ? `(at least ${LEAST_REASON} characters)` : "(for the audit)"}
            <input value={reason} size={60} onChange={(event) => setReason(event.target.value)} />
          </label>
        </p>
        {hit !== undefined && (
          <p>
            <label className="field">
              <span>
                Work that runs in <b>{hit}</b> loses its hold. Type the name of this queue to go on
              </span>
              <input value={typed} size={40} onChange={(event) => setTyped(event.target.value.trim())} />
            </label>
          </p>
        )}
        {apply.error && <Trouble error={apply.error} />}
        {moved && <p>Nothing was applied, and your edit is kept: go on with it on what is there now.</p>}
        {discard.error && <Trouble error={discard.error} />}
        <p className="row">
          {!moved && (
            <button type="submit" className="main" disabled={lacking || apply.isPending}>
              {apply.isPending ? "applying" : "Apply"}
            </button>
          )}
          <Link to="/edit" search={{ root: of.root }}>
            {moved ? "Go on with my edit" : "Edit again"}
          </Link>
          <button type="button" onClick={() => discard.mutate()}>
            Give up
          </button>
          <Command text={`queuer apply --changeset ${id}`} />
        </p>
      </form>
    </section>
  );
}

/** The queue whose running work a plan makes reclaimable, evicts or leaves above its limit; undefined: none. */
function hurt({ overLimit = [], reclaimable = [], effect, victims }: Changeset): string | undefined {
  const evicted = effect === "evict" ? victims?.jobs?.[0]?.queue : undefined;
  return evicted ?? overLimit[0]?.queue ?? reclaimable[0]?.queue;
}

function Revert({ of }: { of: Changeset }) {
  const { data: me } = useQuery(queries.me());
  const navigate = useNavigate();
  const plan = useMutation({
    mutationFn: () => body(api.POST("/api/v1/changesets", { body: { revert: of.revision } })),
    onSuccess: (planned) => {
      if (planned.id) void navigate({ to: "/edit/$id", params: { id: planned.id } });
    },
  });
  return (
    <section className="panel" aria-label="Take back">
      {plan.error && <Trouble error={plan.error} />}
      <p className="row">
        <button type="button" disabled={plan.isPending} onClick={() => plan.mutate()}>
          Take this back
        </button>
        <span className="soft">Plans the opposite, to be looked at before it is applied.</span>
        {me?.readsAudit && <Link to="/audit">Audit</Link>}
      </p>
    </section>
  );
}

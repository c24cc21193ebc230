/** One job. In ten seconds: its state, why, since when, and what to do now. */

import { path, sh } from "../../text/shell";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { Failure } from "../../api/client";
import * as queries from "../../api/queries";
import type { Detail, ReasonDetail, WorkloadDetail, WouldAdmit } from "../../api/schema";
import { Ago, At } from "../../kit/Ago";
import { Chip } from "../../kit/Chip";
import { Command, CopyAs } from "../../kit/CopyAs";
import { Answer, Empty, Panel, Part } from "../../kit/Panel";
import { Scroll } from "../../kit/Scroll";
import { Title } from "../../kit/Title";
import { Why } from "../../kit/Why";
import { demand } from "../../text/quantity";
import { Commands } from "./Commands";
import { Placement } from "./Placement";
import { Lanes } from "./Lanes";
import { WhatIf } from "./WhatIf";

export function Job() {
  const { uid } = useParams({ from: "/jobs/$uid" });
  const query = useQuery(queries.job(uid));
  const missing = query.error instanceof Failure && query.error.status === 404;
  return (
    <>
      {query.error && !query.data && <Title>Job {uid}</Title>}
      <Answer query={query}>{(job) => <Shown job={job} />}</Answer>
      {missing && (
        <p className="soft">
          Jobs of namespaces that you may not read are not found either.{" "}
          <Link to="/jobs">The jobs that you may see</Link>, <Link to="/me">what you may</Link>.
        </p>
      )}
    </>
  );
}

function Shown({ job }: { job: WorkloadDetail }) {
  const { explanation } = job;
  const { detail, others } = explanation;
  return (
    <>
      <Head job={job} />
      <Banner job={job} detail={detail} />
      <div className="columns">
        {others.length > 0 && <Others reasons={others} />}
        <Asked job={job} detail={detail} />
        {explanation.wouldAdmit.length + told(job, "reserved").length > 0 && (
          <Offers job={job} changes={explanation.wouldAdmit} />
        )}
        {job.admission && <Placement job={job} />}
      </div>
      <Lanes uid={job.uid} />
      {!job.deleted && job.finished === null && <WhatIf job={job} />}
      <History job={job} />
    </>
  );
}

/** The job as commands name it. */
const referenceOf = (job: WorkloadDetail) => sh`${job.kind.toLowerCase()}/${job.name} -n ${job.namespace}`;

function Head({ job }: { job: WorkloadDetail }) {
  const reference = referenceOf(job);
  return (
    <header className="job-head">
      <Title>
        <small>{job.namespace}/</small>
        {job.name}
      </Title>
      <span className="soft">{job.kind}</span>
      <Chip word={job.deleted ? "deleted" : job.state} />
      <span>
        in{" "}
        <Link to="/queues/$path" params={{ path: job.queue }}>
          {job.queue}
        </Link>
      </span>
      <span className="soft">
        {job.user && <>by {job.user}, </>}
        submitted <Ago at={job.submitted} suffix=" ago" />
        {job.state === "Running" && job.landed && (
          <>
            , runs since <At at={job.landed} />
          </>
        )}
        , priority {job.override?.priority?.value ?? job.priority}
        {job.attempt > 1 && <>, attempt {job.attempt}</>}
      </span>
      <span className="spring" />
      <CopyAs
        queuer={`why ${reference}`}
        kubectl={`describe ${reference.replace("/", " ")}`}
        curl={`/api/v1/workloads/${job.uid}`}
      />
      <Commands job={job} />
    </header>
  );
}

function Banner({ job, detail }: { job: WorkloadDetail; detail: Detail }) {
  const { primary, verdict, next, cycle, ageSeconds, kept } = job.explanation;
  const decided = cycle !== null && ageSeconds !== null && new Date(Date.parse(job.asOf) - ageSeconds * 1000);
  return (
    <section className={`job-banner banner-${(verdict ?? job.state).toLowerCase()}`} aria-label="Why">
      {job.eviction && (
        <p>
          <Chip word="warning" label="to be evicted" /> at <At at={job.eviction.at} />: {job.eviction.reason}
        </p>
      )}
      {job.deleted && <p>This job was deleted; what follows is its history.</p>}
      {primary && verdict ? (
        <p className="job-why">
          {verdict !== "WAIT" && <Chip word={verdict} />}{" "}
          <span data-testid="reason">{`${primary.token}: ${primary.text}`}</span> <Since reason={primary} />
        </p>
      ) : (
        <p className="job-why">
          <Chip word={job.state} /> {STATES[job.state]}
        </p>
      )}
      {WAITS.has(job.state) && detail.evicted?.note && (
        <p>
          <At at={detail.evicted.at} />: {detail.evicted.note}.
        </p>
      )}
      {told(job, "failure", "estimate").map((each) => (
        <p key={each.text}>{each.text}</p>
      ))}
      {job.explanation.do && <p>What to do: {job.explanation.do}.</p>}
      <p className="row soft">
        {next && <Command text={next} />}
        {decided && (
          <small>
            cycle {cycle}, <Ago at={decided.toISOString()} suffix=" ago" />
            {kept !== null && kept !== cycle && <> (on record: {kept})</>}
          </small>
        )}
      </p>
    </section>
  );
}

/** In these an eviction is news. */
const WAITS: ReadonlySet<WorkloadDetail["state"]> = new Set(["Queued", "Held", "Evicting"]);

const STATES: Record<WorkloadDetail["state"], string> = {
  Queued: "No cycle has looked at it yet.",
  Held: "It is on hold.",
  Admitted: "Its pods do not all run yet.",
  Placing: "Its pods do not all run yet.",
  Running: "All its pods run.",
  Evicting: "Its pods are leaving; then it is queued again.",
  Succeeded: "It has succeeded.",
  Failed: "It has failed.",
};

const Since = ({ reason: { since } }: { reason: ReasonDetail }) =>
  since && (
    <small>
      for <Ago at={since} />
    </small>
  );

/** What would keep it waiting without the reason above. */
function Others({ reasons }: { reasons: readonly ReasonDetail[] }) {
  return (
    <Part title="Also in its way">
      <ol className="list">
        {reasons.map((reason) => (
          <li key={reason.token}>
            <Why of={reason} /> <Since reason={reason} />
          </li>
        ))}
      </ol>
    </Part>
  );
}

const ASKED = [
  ...["promised end", "promises", "evictable"],
  ...["asks", "override", "nodes", "holds it", "ahead", "waited"],
];

/** What it asks for, what there is, and who has the rest: the same words as `queuer why`. */
function Asked({ job, detail }: { job: WorkloadDetail; detail: Detail }) {
  return (
    <Part title="Asked for and available">
      <table className="plain">
        <tbody>
          {detail.available?.map((row) => (
            <tr key={row.flavor}>
              <th scope="row">free on {row.flavor}</th>
              <td>
                {demand(row.free)}
                {row.headroom.map(({ queue, room }) => (
                  <div key={queue} className="soft">
                    room in {queue}: {demand(room)}
                  </div>
                ))}
              </td>
            </tr>
          ))}
          {told(job, ...ASKED).map((each, index) => (
            <tr key={index}>
              <th scope="row">{each.label}</th>
              <td>
                <Linked text={each.text} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Part>
  );
}

/** The paragraphs of its explanation that have one of these labels. */
function told(job: WorkloadDetail, ...labels: readonly string[]) {
  return job.explanation.paragraphs?.filter((each) => labels.includes(each.label)) ?? [];
}

const QUEUE = /(\broot(?:\.[a-z0-9-]+)+)/;

/** A text whose queues are links. */
function Linked({ text }: { text: string }) {
  return text.split(QUEUE).map((part, index) =>
    index % 2 ? (
      <Link key={index} to="/queues/$path" params={{ path: part }}>
        {part}
      </Link>
    ) : (
      part
    ),
  );
}

function Offers({ job, changes }: { job: WorkloadDetail; changes: readonly WouldAdmit[] }) {
  return (
    <Part title="What would admit it now">
      <ul className="list">
        {changes.map((each) => (
          <li key={each.change}>
            {each.change}{" "}
            <small>
              {each.evictions} {each.evictions === 1 ? "eviction" : "evictions"}
            </small>
          </li>
        ))}
      </ul>
      {changes.length > 0 && <p className="soft">Tried with the decision itself on the newest cycle.</p>}
      {told(job, "reserved").map((each) => (
        <p key={each.text}>reserved: {each.text}</p>
      ))}
    </Part>
  );
}

function History({ job }: { job: WorkloadDetail }) {
  const { uid } = job;
  const query = useQuery(queries.jobEvents(uid));
  return (
    <Panel
      title="Events"
      query={query}
      tools={<CopyAs queuer={`events ${referenceOf(job)}`} curl={path`/api/v1/events?uid=${uid}`} />}
    >
      {(data) =>
        data.items.length === 0 ? (
          <Empty>No event of this job is kept any more.</Empty>
        ) : (
          <Scroll label="Events of this job" className="scroll">
            <table className="plain facts">
              <tbody>
                {data.items.map((event) => (
                  <tr key={event.id}>
                    <td>
                      <At at={event.at} />
                    </td>
                    <th scope="row">{event.type}</th>
                    <td>{event.text}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )
      }
    </Panel>
  );
}

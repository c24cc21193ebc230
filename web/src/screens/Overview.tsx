/** In ten seconds: is anything admitted, is anyone starved, where is free capacity and what do jobs wait for. */

import { sh } from "../text/shell";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import * as queries from "../api/queries";
import type { AttentionItem, Overview as Answer, ReasonGroup } from "../api/schema";
import { Ago } from "../kit/Ago";
import { Chip } from "../kit/Chip";
import { Command, CopyAs } from "../kit/CopyAs";
import { Heads } from "../kit/Heads";
import { Icicle, type Measure } from "../kit/Icicle";
import { Empty, Panel } from "../kit/Panel";
import { ResourcePicker } from "../kit/ResourcePicker";
import { type Line, Series, type Ticks } from "../kit/Series";
import { Title } from "../kit/Title";
import { useResource } from "../kit/resource";
import { amount, grouped, short, told } from "../text/quantity";
import { span } from "../text/time";

const DAY_SECONDS = 86_400;
const LEAST_SECONDS = 900;
/** Of the figures of the last day. */
const STEP_SECONDS = 300;
/** As many as leave the rest of the screen in sight. */
const MOST_NEEDY = 8;

export function Overview() {
  const query = useQuery(queries.overview());
  const shares = useQuery(queries.queues());
  const search = useSearch({ from: "/" });
  const navigate = useNavigate({ from: "/" });
  // One answer fills four panels: that it failed is said once.
  const rest = { ...query, error: null };
  const { names, resource = "", unknown } = useResource(search.resource, shares.data?.items);
  return (
    <>
      <Title hidden>Overview</Title>
      <Panel
        title="Now"
        query={query}
        tools={
          <>
            <ResourcePicker
              names={names}
              chosen={resource || undefined}
              unknown={unknown}
              choose={(name) => void navigate({ search: (old) => ({ ...old, resource: name }) })}
            />
            <CopyAs queuer="status" curl="/api/v1/overview" />
          </>
        }
      >
        {(data) => <Strip data={data} resource={resource} />}
      </Panel>
      {(query.data || !query.error) && (
        <div className={query.error ? "columns aged" : "columns"}>
          <Panel title="Attention" query={rest}>
            {(data) => <AttentionList data={data} resource={resource} />}
          </Panel>
          <Panel title="Pending by reason" query={rest} tools={<CopyAs queuer="why --all" />}>
            {(data) => <Reasons groups={data.reasons} resource={resource} />}
          </Panel>
        </div>
      )}
      <Shares resource={resource} />
      {query.data && (
        <Panel title={`Last ${span(shown(query.data))}`} query={rest} className={query.error ? "aged" : ""}>
          {(data) => <Day data={data} resource={resource} />}
        </Panel>
      )}
    </>
  );
}

/** Seconds that the charts go back: a day, or as long as there are figures. */
function shown({ at, asOf }: Answer): number {
  const age = at[0] === undefined ? 0 : (Date.parse(asOf) - Date.parse(at[0])) / 1000;
  return Math.min(DAY_SECONDS, Math.max(LEAST_SECONDS, age));
}

function Strip({ data, resource }: { data: Answer; resource: string }) {
  const capacity = data.capacity.find((each) => each.resource === resource);
  const count = (state: string) => data.counts[state] ?? 0;
  return (
    <ul className="strip">
      <li>
        <b>{grouped(count("Queued"))}</b>
        <span>queued</span>
      </li>
      {count("Held") > 0 && (
        <li>
          <b>{grouped(count("Held"))}</b>
          <span>held</span>
        </li>
      )}
      <li>
        <b>{grouped(count("Placing") + count("Admitted"))}</b>
        <span>placing</span>
      </li>
      <li>
        <b>{grouped(count("Running"))}</b>
        <span>running</span>
      </li>
      {capacity && (
        <li>
          <b>
            {grouped(amount(capacity.used))} / {grouped(amount(capacity.allocatable))}
          </b>
          <span>
            {short(resource)} used, {told(amount(capacity.free), resource)} free
            {amount(capacity.reserved) > 0 && `, ${told(amount(capacity.reserved), resource)} reserved`}
            {amount(capacity.outside) > 0 && `, ${told(amount(capacity.outside), resource)} by pods outside the queues`}
            {amount(capacity.unplaceable) > 0 &&
              `, ${told(amount(capacity.unplaceable), resource)} on nodes out of use`}
          </span>
        </li>
      )}
      <li>
        <b>{data.oldestPending ? <Ago at={data.oldestPending} /> : "–"}</b>
        <span>oldest wait, since the job was submitted</span>
      </li>
    </ul>
  );
}

function AttentionList({ data, resource }: { data: Answer; resource: string }) {
  if (data.queues <= 1 && Object.keys(data.counts).length === 0) return <FirstSteps data={data} />;
  if (data.attention.length === 0) {
    const capacity = data.capacity.find((each) => each.resource === resource);
    return (
      <Empty>
        Nothing needs you.
        {capacity && ` ${capacity.used} of ${capacity.allocatable} ${short(resource)} in use.`}
      </Empty>
    );
  }
  const shown = data.attention.toSorted(worse).slice(0, MOST_NEEDY);
  return (
    <>
      <ul className="list">
        {shown.map((item) => (
          <Needy key={`${item.kind}${item.ref}${item.text}`} item={item} />
        ))}
      </ul>
      {data.attentionTotal > shown.length && (
        <p className="soft">
          {grouped(data.attentionTotal - shown.length)} more;{" "}
          <Link to="/queues" search={{ only: "attention" }}>
            see the queues
          </Link>
          .
        </p>
      )}
    </>
  );
}

const SEVERITIES = ["critical", "warning", "info"];

/** What is more severe first; of the like, what is so for longer. */
function worse(one: AttentionItem, other: AttentionItem): number {
  return (
    SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity) ||
    (one.since ?? "").localeCompare(other.since ?? "")
  );
}

function Needy({ item }: { item: AttentionItem }) {
  return (
    <li>
      <Chip {...look(item)} /> <About item={item} />{" "}
      {item.since && (
        <small className="soft">
          <Ago at={item.since} />
        </small>
      )}
    </li>
  );
}

/** Who has to change its job has to act: as everywhere, in red. */
function look({ kind, severity }: AttentionItem) {
  return kind === "unstartable" ? { word: "CHANGE", label: "change" } : { word: severity };
}

/** What it says, as a link to the queue, the jobs or the nodes that it is about. */
function About({ item }: { item: AttentionItem }) {
  if (item.ref)
    return (
      <Link to="/queues/$path" params={{ path: item.ref }}>
        {item.text}
      </Link>
    );
  if (item.kind === "unstartable")
    return (
      <Link to="/jobs" search={{ unstartable: "true" }}>
        {item.text}
      </Link>
    );
  if (item.kind === "nodesOut") return <Link to="/topology">{item.text}</Link>;
  return item.text;
}

function FirstSteps({ data }: { data: Answer }) {
  const seen = data.capacity.length > 0;
  return (
    <ol className="steps">
      <li>
        {seen ? "✓ Nodes were seen." : "No node was seen yet. The controller looks at the cluster's nodes:"}
        {!seen && <Command text="kubectl get nodes" />}
      </li>
      <li>
        Say who may use the queue root, or make queues below it:{" "}
        <Command text="queuer export > tree.yaml && queuer apply -f tree.yaml" />
      </li>
      <li>
        Let a namespace take part, and label a job:{" "}
        <Command text="kubectl label namespace default queuer.dev/managed=true queuer.dev/default-queue=root" />
      </li>
    </ol>
  );
}

function Reasons({ groups, resource }: { groups: readonly ReasonGroup[]; resource: string }) {
  if (groups.length === 0) return <Empty>No job waits.</Empty>;
  const numbers = ["jobs", short(resource), "oldest"];
  return (
    <table className="plain">
      <Heads titles={["reason", ...numbers]} numbers={numbers} />
      <tbody>
        {groups.map((group) => (
          <tr key={group.token + group.verdict}>
            <th scope="row">
              <Link to="/jobs" search={{ reason: group.token, verdict: group.verdict }}>
                {group.token}
              </Link>{" "}
              {group.verdict !== "WAIT" && <Chip word={group.verdict} />}
            </th>
            <td className="number">{grouped(group.jobs)}</td>
            <td className="number">{told(amount(group.amounts[resource]), resource)}</td>
            <td className="number">
              <Ago at={group.oldest} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Shares({ resource }: { resource: string }) {
  const query = useQuery(queries.queues());
  const [by, setBy] = useState<Measure>("used");
  return (
    <Panel
      title={resource ? `Where ${short(resource)} goes` : "Where capacity goes"}
      query={query}
      tools={
        <>
          <span className="choice" role="group" aria-label="Width">
            {(["used", "guaranteed"] as const).map((measure) => (
              <button key={measure} type="button" aria-pressed={by === measure} onClick={() => setBy(measure)}>
                {measure}
              </button>
            ))}
          </span>
          <CopyAs queuer={sh`queue tree --resource ${resource}`} curl="/api/v1/queues" />
        </>
      }
    >
      {(data) => (
        <>
          <Icicle queues={data.items} resource={resource} by={by} />
          <p className="soft">
            Width is what is {by}
            {by === "used" && ", the rest is free or used outside the queues"}; what is borrowed is hatched, and the
            smallest have no name.{" "}
            <Link to="/queues" search={{ resource }}>
              As a table
            </Link>
          </p>
        </>
      )}
    </Panel>
  );
}

function Day({ data, resource }: { data: Answer; resource: string }) {
  const series = data.series.find((each) => each.resource === resource);
  const lines = useMemo<Line[]>(
    () =>
      series
        ? [
            { label: "used", values: series.used.map(amount), colour: "--own", fill: true },
            { label: "guaranteed", values: series.guaranteed.map(amount), colour: "--ink", dash: [2, 3] },
            { label: "pending", values: series.pending.map(amount), colour: "--pending", dash: [6, 3], backlog: true },
          ]
        : [],
    [series],
  );
  const ticks = useMemo<Ticks[]>(
    () => [
      { label: "admitted ▲", values: data.admitted, colour: "--good", edge: "bottom" },
      { label: "evicted ▼", values: data.evicted, colour: "--bad", edge: "top" },
    ],
    [data.admitted, data.evicted],
  );
  if (!series || data.at.length === 0)
    return <Empty>No cycle of the last day has recorded {short(resource)} yet.</Empty>;
  return (
    <Series
      label={`${short(resource)} used, guaranteed and pending`}
      at={data.at}
      lines={lines}
      ticks={ticks}
      step={STEP_SECONDS}
      seconds={shown(data)}
      until={data.asOf}
    />
  );
}

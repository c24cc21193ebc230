/** Where the free capacity is, and how large a gang it can take. */

import { Title } from "../../kit/Title";
import { path as at } from "../../text/shell";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { Failure } from "../../api/client";
import * as queries from "../../api/queries";
import type { Domain, Topology as Seen, WorkloadDetail } from "../../api/schema";
import { CopyAs } from "../../kit/CopyAs";
import { Filter } from "../../kit/Filter";
import { Answer, Empty, Panel } from "../../kit/Panel";
import { type Column, Table } from "../../kit/Table";
import { amount, grouped, short, told } from "../../text/quantity";
import { hosts } from "./layout";
import { part } from "./part";
import { useNow } from "../../app/now";
import { Picture, holder } from "./Picture";
import { Slots } from "./Slots";

const HOST = "host";
const SHAPE = "8xgpu:8";
const NONE: ReadonlySet<string> = new Set();

export function Topology() {
  const search = useSearch({ from: "/topology" });
  const navigate = useNavigate({ from: "/topology" });
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  const shape = search.shape ?? SHAPE;
  const query = useQuery(queries.topology(HOST, search.resource));
  const job = useQuery({ ...queries.job(search.job ?? ""), enabled: search.job !== undefined });
  const fits = useQuery({ ...queries.places(shape, search.fit ?? ""), enabled: search.fit !== undefined });
  const places = search.fit ? fits.data?.rows[0]?.places : undefined;
  const marks = useMemo(
    () => ({ job: search.job ? hostsOf(job.data) : NONE, fits: places ? new Set(places) : NONE }),
    [search.job, job.data, places],
  );
  // Both parts are answered from the newest cycle: that there is none yet is said once.
  const young = query.error instanceof Failure && query.error.status === 404 && !search.resource;
  if (young)
    return (
      <>
        <Title>Topology</Title>
        <Empty>
          There is no map yet: it is drawn from the decisions, and none has been made. A decision is made once a job
          waits.
        </Empty>
      </>
    );
  return (
    <>
      <Title hidden>Topology</Title>
      <Slots
        shape={shape}
        chosen={search.fit}
        ask={(shape) => set({ shape })}
        choose={(fit) => set({ fit, ...(fit && fit !== HOST && { level: fit }) })}
      />
      <Panel
        title="Domains"
        query={query}
        tools={
          <>
            <Filter label="find a host or domain" search value={search.find ?? ""} set={(find) => set({ find })} />
            {query.data && (
              <Choice
                label="Level"
                names={query.data.levels}
                chosen={boxes(query.data, search.level)}
                choose={(level) => set({ level })}
              />
            )}
            <Choice
              label="Form"
              names={["map", "table"]}
              chosen={search.as === "table" ? "table" : "map"}
              choose={(as) => set({ as })}
            />
            <CopyAs
              queuer="topo"
              curl={search.level ? at`/api/v1/topology?level=${search.level}` : "/api/v1/topology"}
            />
          </>
        }
      >
        {(data) => {
          if (data.domains.length === 0) return <Empty>No node was seen yet.</Empty>;
          const level = boxes(data, search.level);
          const find = search.find ?? "";
          return (
            <>
              {search.job && job.data && <OfJob job={job.data} count={marks.job.size} clear={() => set({ job: "" })} />}
              {search.fit && places && (
                <p>
                  <b>{shape}</b> fits in{" "}
                  {places.length > 0
                    ? `${grouped(places.length)} of level ${search.fit}: ${named(places)}`
                    : `no ${search.fit} now`}
                  .
                </p>
              )}
              <Sum level={level} resource={search.resource} />
              {search.as === "table" ? (
                <Domains level={level} resource={search.resource} find={find} fits={marks.fits} />
              ) : (
                <Drawn data={data} level={level} find={find} all={search.as === "map"} set={set} {...marks} />
              )}
            </>
          );
        }}
      </Panel>
    </>
  );
}

/** The level that the boxes are of: as asked, else the narrowest above the hosts. */
function boxes(data: Seen, asked: string | undefined): string {
  return data.levels.find((level) => level === asked) ?? data.levels.at(-2) ?? HOST;
}

function hostsOf(job: WorkloadDetail | undefined): ReadonlySet<string> {
  const placements = job?.admission?.placements ?? [];
  return new Set(
    placements.flatMap(({ hosts, nodes }) => Object.keys(hosts && Object.keys(hosts).length ? hosts : nodes)),
  );
}

function named(places: readonly string[]): string {
  const most = 8;
  const shown = places.slice(0, most).join(", ");
  return places.length > most ? `${shown} and ${grouped(places.length - most)} more` : shown;
}

function OfJob({ job, count, clear }: { job: WorkloadDetail; count: number; clear: () => void }) {
  return (
    <p>
      <Link to="/jobs/$uid" params={{ uid: job.uid }}>
        {job.name}
      </Link>{" "}
      {count > 0 ? `is on ${grouped(count)} ${count === 1 ? "host, outlined" : "hosts, outlined"}` : "has no place yet"}
      .{" "}
      <button type="button" onClick={clear}>
        Forget it
      </button>
    </p>
  );
}

interface ChoiceProps {
  label: string;
  names: readonly string[];
  chosen: string;
  choose: (name: string) => void;
}

function Choice({ label, names, chosen, choose }: ChoiceProps) {
  return (
    <span className="choice" role="group" aria-label={label}>
      {names.map((name) => (
        <button key={name} type="button" aria-pressed={name === chosen} onClick={() => choose(name)}>
          {name}
        </button>
      ))}
    </span>
  );
}

interface DrawnProps {
  data: Seen;
  level: string;
  /** Draw every domain, however many there are. */
  all: boolean;
  set: (change: { as: string }) => void;
  find: string;
  job: ReadonlySet<string>;
  fits: ReadonlySet<string>;
}

function Drawn({ data, level, all, set, find, job, fits }: DrawnProps) {
  const seen = useMemo(() => hosts(data.domains, data.resource), [data]);
  const depth = level === HOST ? 0 : data.levels.indexOf(level) + 1;
  const few = useMemo(() => part(seen, depth, { find, job, fits }), [seen, depth, find, job, fits]);
  const crowded = !all && few.shown < few.all;
  const notice = crowded && (
    <p role="status">
      {few.shown > 0
        ? `Drawn: ${grouped(few.shown)} of ${grouped(few.all)} domains of level ${level}, those with what is looked for.`
        : `${grouped(few.all)} domains of level ${level} are too many to look through on a map: here they are rows.`}{" "}
      <button type="button" onClick={() => set({ as: "map" })}>
        Draw all
      </button>
    </p>
  );
  if (crowded && few.shown === 0)
    return (
      <>
        {notice}
        <Domains level={level} resource={data.resource} find={find} fits={fits} />
      </>
    );
  return (
    <>
      <LeftOut of={data} />
      {notice}
      <Picture
        hosts={crowded ? few.hosts : seen}
        among={seen.length}
        depth={depth}
        level={level}
        resource={data.resource}
        {...{ find, job, fits }}
      />
      <p className="legend" aria-hidden="true">
        a box is a {level}, a cell a host; filled is used <i className="key key-reserved" /> reserved{" "}
        <i className="key key-cordoned" /> cordoned <i className="key key-unready" /> not ready{" "}
        <i className="key key-job" /> of the chosen job <i className="key key-fits" /> the shape fits
      </p>
    </>
  );
}

/** How much is free, and in how large pieces. */
function Sum({ level, resource }: { level: string; resource: string | undefined }) {
  const { data } = useQuery(queries.topology(level, resource));
  if (!data) return null;
  return (
    <p className="soft">
      {told(amount(data.used), data.resource)} {short(data.resource)} used
      {amount(data.outside) > 0 && `, ${told(amount(data.outside), data.resource)} by pods outside the queues`}
      {amount(data.reserved) > 0 && `, ${told(amount(data.reserved), data.resource)} reserved`},{" "}
      {told(amount(data.free), data.resource)} free; the largest free part in one {data.level} is{" "}
      {told(amount(data.largestFree), data.resource)}. Fragmentation {data.fragmentation.toFixed(2)}.
    </p>
  );
}

function LeftOut({ of }: { of: Seen }) {
  if (of.leftOut === 0) return null;
  return (
    <p>
      <b>{grouped(of.leftOut)} further domains are not shown</b>: those with least room.
    </p>
  );
}

interface DomainsProps {
  level: string;
  resource: string | undefined;
  find: string;
  fits: ReadonlySet<string>;
}

function Domains({ level, resource, find, fits }: DomainsProps) {
  const query = useQuery(queries.topology(level, resource));
  // An older answer may still be of another level.
  const data = query.data?.level === level ? query.data : undefined;
  const columns = useMemo(() => columnsOf(data?.resource ?? "", fits), [data, fits]);
  return (
    <Answer query={{ ...query, data }}>
      {(data) => {
        const shown = data.domains.filter((domain) => path(domain).includes(find));
        return (
          <>
            <LeftOut of={data} />
            {shown.length === 0 ? (
              <Empty>
                No {data.level} is called <code>{find}</code>.
              </Empty>
            ) : (
              <Table label={`Domains of level ${data.level}`} rows={shown} id={path} columns={columns} />
            )}
          </>
        );
      }}
    </Answer>
  );
}

function path(domain: Domain): string {
  return domain.parent ? `${domain.parent}/${domain.domain}` : domain.domain;
}

/** The jobs that room is kept for. */
function Kept({ of }: { of: Domain }) {
  const now = useNow();
  const words = of.heldFor.map((each) => holder(each, now)).join("; ");
  return <span title={words}>{words}</span>;
}

function columnsOf(resource: string, fits: ReadonlySet<string>): Column<Domain>[] {
  const name = short(resource);
  return [
    { id: "domain", title: "domain", width: "minmax(24ch, 3fr)", cell: path },
    { id: "nodes", title: "nodes", width: "8ch", number: true, cell: (row) => grouped(row.nodes) },
    {
      id: "free",
      title: `${name} free`,
      width: "14ch",
      number: true,
      cell: (row) => told(amount(row.free[resource]), resource),
    },
    {
      id: "reserved",
      title: "reserved",
      width: "10ch",
      number: true,
      cell: (row) => told(amount(row.reserved[resource]), resource),
    },
    {
      id: "used",
      title: "used",
      width: "10ch",
      number: true,
      cell: (row) => told(amount(row.used[resource]), resource),
    },
    {
      id: "outside",
      title: "outside",
      width: "10ch",
      number: true,
      cell: (row) => told(amount(row.outside[resource]), resource),
    },
    {
      id: "all",
      title: `of ${name}`,
      width: "14ch",
      number: true,
      cell: (row) => told(amount(row.allocatable[resource]), resource),
    },
    { id: "whole", title: "whole nodes free", width: "18ch", number: true, cell: (row) => grouped(row.wholeNodes) },
    { id: "for", title: "kept for", width: "minmax(16ch, 3fr)", cell: (row) => <Kept of={row} /> },
    { id: "cordoned", title: "cordoned", width: "10ch", number: true, cell: (row) => grouped(row.cordoned) },
    { id: "unready", title: "not ready", width: "10ch", number: true, cell: (row) => grouped(row.notReady) },
    {
      id: "fits",
      title: "shape",
      width: "10ch",
      cell: (row) => (fits.has(path(row)) || fits.has(row.domain) ? "✓ fits" : ""),
    },
  ];
}

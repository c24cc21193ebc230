/** One queue. In ten seconds: how much may still start there, who is ahead, what changed. */

import { path as at, sh } from "../text/shell";
import { type UseQueryResult, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { Failure } from "../api/client";
import * as queries from "../api/queries";
import type { Account, InLine, Others, QueueDetail as Row } from "../api/schema";
import { Chip } from "../kit/Chip";
import { CopyAs } from "../kit/CopyAs";
import { JOB_COLUMNS, JobTable } from "../kit/JobTable";
import { Answer, Empty, Panel } from "../kit/Panel";
import { BarLegend, QuotaBar } from "../kit/QuotaBar";
import { Series } from "../kit/Series";
import { Tabs } from "../kit/Tabs";
import { Title } from "../kit/Title";
import { Entries } from "./Log";
import { amount, demand, grouped, short } from "../text/quantity";
import { span } from "../text/time";

const TABS = ["Pending", "Running", "History", "Policy", "Changes"] as const;
type Tab = (typeof TABS)[number];

export function Queue() {
  const { path } = useParams({ from: "/queues/$path" });
  const search = useSearch({ from: "/queues/$path" });
  const navigate = useNavigate({ from: "/queues/$path" });
  const query = useQuery(queries.queue(path));
  const tab = TABS.find((each) => each === search.tab) ?? "Pending";
  if (query.error && !query.data) return <Missing path={path} query={query} />;
  return (
    <Answer query={query}>
      {(queue) => (
        <>
          <Head queue={queue} />
          {queue.leaf && queue.effectiveState === "open" && <Room path={path} />}
          <section className="panel" aria-label="Quota">
            <Accounts accounts={queue.accounts} />
            <BarLegend />
          </section>
          <Tabs
            label="Parts"
            names={TABS}
            chosen={tab}
            choose={(name) => void navigate({ search: (old) => ({ ...old, tab: name }), replace: true })}
          >
            <Part tab={tab} queue={queue} />
          </Tabs>
        </>
      )}
    </Answer>
  );
}

/** A queue that cannot be shown. Of one that was deleted the changes are kept. */
function Missing({ path, query }: { path: string; query: UseQueryResult<Row> }) {
  const gone = query.error instanceof Failure && query.error.status === 404;
  return (
    <>
      <Title>{path}</Title>
      <Answer query={query}>{() => null}</Answer>
      {gone && (
        <section className="panel" aria-label="Changes">
          <header className="panel-head">
            <h2>What was changed under this name</h2>
            <div className="panel-tools">
              <Link to="/queues">All queues</Link>
            </div>
          </header>
          <Changes path={path} />
        </section>
      )}
    </>
  );
}

function Head({ queue }: { queue: Row }) {
  const names = queue.path.split(".");
  return (
    <header className="job-head">
      <Title>
        {names.map((name, index) => {
          const path = names.slice(0, index + 1).join(".");
          return index === names.length - 1 ? (
            name
          ) : (
            <span key={path}>
              <Link to="/queues/$path" params={{ path }}>
                {name}
              </Link>
              .
            </span>
          );
        })}
      </Title>
      <Chip word={queue.effectiveState} />
      <span className="soft">
        {grouped(queue.admittedWorkloads)} admitted, {grouped(queue.pendingWorkloads)} pending
        {queue.misconfiguredWorkloads > 0 && `, ${queue.misconfiguredWorkloads} can never start`}; weight {queue.weight}
        {queue.managedBy && `, managed by ${queue.managedBy}`}
      </span>
      <span className="spring" />
      {queue.may.includes("edit") && (
        <Link to="/edit" search={{ root: queue.path }}>
          Edit quota
        </Link>
      )}
      <CopyAs queuer={sh`queue show ${queue.path}`} curl={at`/api/v1/queues/${queue.path}`} />
    </header>
  );
}

function Room({ path }: { path: string }) {
  const query = useQuery(queries.headroom(path));
  return (
    <Panel title="May start now" query={query} tools={<CopyAs curl={at`/api/v1/queues/${path}/headroom`} />}>
      {(data) => (
        <>
          <p>{data.text}</p>
          <table className="plain">
            <thead>
              <tr>
                <th scope="col">resource</th>
                <th scope="col">flavor</th>
                {["own", "borrowable", "free", "may start now"].map((title) => (
                  <th key={title} scope="col" className="number">
                    {title}
                  </th>
                ))}
                <th scope="col">capped by</th>
                <th scope="col">largest gang in one</th>
              </tr>
            </thead>
            <tbody>
              {data.rows.map((row) => (
                <tr key={row.resource + row.flavor}>
                  <th scope="row">{short(row.resource)}</th>
                  <td>{row.flavor}</td>
                  <td className="number">{row.own}</td>
                  <td className="number">{row.borrowable}</td>
                  <td className="number">{row.free}</td>
                  <td className="number">
                    <b>{row.mayStartNow ?? "–"}</b>
                  </td>
                  <td>{row.cappedBy ? `${row.cappedBy}${row.ancestor ? ` of ${row.ancestor}` : ""}` : "–"}</td>
                  <td>
                    {Object.entries(row.largestGang)
                      .map(([level, pods]) => `${short(level)} ${pods}`)
                      .join(", ")}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
    </Panel>
  );
}

function Accounts({ accounts: all }: { accounts: readonly Account[] }) {
  // Of one flavor alone the figures by flavor would only say the same again.
  const flavors = new Set(all.map((account) => account.flavor).filter((flavor) => flavor !== null));
  const accounts = flavors.size > 1 ? all : all.filter((account) => account.flavor === null);
  if (accounts.length === 0) return <Empty>No quota row names this queue, and nothing runs in it.</Empty>;
  return (
    <table className="plain accounts">
      <thead>
        <tr>
          <th scope="col">resource</th>
          <th scope="col" className="accounts-bar">
            amounts
          </th>
          {["used", "guaranteed", "limit", "borrowed", "lent", "pending"].map((title) => (
            <th key={title} scope="col" className="number">
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {accounts.map((account) => (
          <tr key={account.resource + account.flavor}>
            <th scope="row">
              {short(account.resource)} {flavors.size > 1 && <small>{account.flavor ?? "all flavors"}</small>}{" "}
              {account.starved && <Chip word="starved" />}
            </th>
            <td>
              <QuotaBar account={account} />
            </td>
            {[
              account.used,
              account.guaranteed,
              account.limit ?? "–",
              account.borrowed,
              account.lent,
              account.pending,
            ].map((value, index) => (
              <td key={index} className="number">
                {value}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Part({ tab, queue }: { tab: Tab; queue: Row }) {
  switch (tab) {
    case "Pending":
      return <Line path={queue.path} />;
    case "Running":
      return <Running path={queue.path} />;
    case "History":
      return <Past path={queue.path} />;
    case "Policy":
      return <Policy queue={queue} />;
    case "Changes":
      return <Changes path={queue.path} />;
  }
}

function Line({ path }: { path: string }) {
  const query = useInfiniteQuery(queries.pending(path));
  const items = useMemo(() => query.data?.pages.flatMap((page) => page.items), [query.data]);
  return (
    <Answer query={{ ...query, data: items } as never}>
      {() =>
        items?.length ? (
          <>
            <p className="soft">In the order of the last cycle.</p>
            <ol className="list">
              {items.map((item) =>
                "gangs" in item ? (
                  <Strangers key={`o${item.first}`} of={item} />
                ) : (
                  <Known key={item.workload.uid} of={item} />
                ),
              )}
            </ol>
            {query.hasNextPage && (
              <button type="button" onClick={() => void query.fetchNextPage()}>
                More
              </button>
            )}
          </>
        ) : (
          <Empty>Nobody waits here.</Empty>
        )
      }
    </Answer>
  );
}

function Known({ of: { rank, workload } }: { of: InLine }) {
  return (
    <li>
      <span className="rank">{rank ?? "–"}</span>
      <Link to="/jobs/$uid" params={{ uid: workload.uid }}>
        {workload.name}
      </Link>{" "}
      <small>
        {workload.namespace} · {demand(workload.demand)}
      </small>{" "}
      {workload.reason && (
        <>
          <Chip word={workload.reason.verdict} /> {workload.reason.text}
        </>
      )}
    </li>
  );
}

function Strangers({ of }: { of: Others }) {
  return (
    <li className="soft">
      <span className="rank">{of.first === of.last ? of.first : `${of.first}–${of.last}`}</span>
      {of.gangs} {of.gangs === 1 ? "job" : "jobs"} of others, {demand(of.amounts)}
    </li>
  );
}

const RUNNING_COLUMNS = JOB_COLUMNS.filter((column) => column.id !== "reason");

function Running({ path }: { path: string }) {
  const query = useInfiniteQuery(queries.jobs({ queue: path, state: "Admitted,Placing,Running,Evicting" }));
  const jobs = useMemo(() => query.data?.pages.flatMap((page) => page.items), [query.data]);
  return (
    <Answer query={{ ...query, data: jobs } as never}>
      {() =>
        jobs?.length ? (
          <JobTable
            label="Running jobs"
            jobs={jobs}
            columns={RUNNING_COLUMNS}
            more={query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : undefined}
          />
        ) : (
          <Empty>Nothing that you may see runs here.</Empty>
        )
      }
    </Answer>
  );
}

const RANGES = { "1 d": [86_400, "5m"], "7 d": [604_800, "1h"], "30 d": [2_592_000, "6h"] } as const;

function Past({ path }: { path: string }) {
  const navigate = useNavigate({ from: "/queues/$path" });
  const search = useSearch({ from: "/queues/$path" });
  const range = search.range && search.range in RANGES ? (search.range as keyof typeof RANGES) : "1 d";
  const [seconds, step] = RANGES[range];
  // To the minute, so that the question stays the same while one looks.
  const since = useMemo(
    () => new Date(Math.floor(Date.now() / 60_000) * 60_000 - seconds * 1000).toISOString(),
    [seconds],
  );
  const query = useQuery(queries.history(path, since, step));
  const chosen = search.resource;
  return (
    <>
      <span className="choice" role="group" aria-label="Time">
        {(Object.keys(RANGES) as (keyof typeof RANGES)[]).map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={name === range}
            onClick={() => void navigate({ search: (old) => ({ ...old, range: name }), replace: true })}
          >
            {name}
          </button>
        ))}
      </span>
      <Answer query={query}>
        {(data) => {
          const names = [...new Set(data.points.flatMap((point) => point.accounts.map((each) => each.resource)))];
          const resource = chosen ?? names.find((name) => name.includes("/")) ?? names[0];
          if (!resource) return <Empty>No cycle of this time has recorded anything here.</Empty>;
          return (
            <>
              <Graph points={data.points} resource={resource} seconds={seconds} />
              <p className="soft">
                {grouped(data.waits.started)} jobs started
                {data.waits.p50Seconds !== null && `; half of them within ${span(data.waits.p50Seconds)}`}
                {data.waits.p90Seconds !== null && `, nine tenths within ${span(data.waits.p90Seconds)}`}.
              </p>
            </>
          );
        }}
      </Answer>
    </>
  );
}

type Points = Awaited<ReturnType<NonNullable<ReturnType<typeof queries.history>["queryFn"]>>>["points"];

function Graph({ points, resource, seconds }: { points: Points; resource: string; seconds: number }) {
  const { at, lines } = useMemo(() => {
    const rows = points.map((point) =>
      point.accounts.find((each) => each.resource === resource && each.flavor === null),
    );
    return {
      at: points.map((point) => point.at),
      lines: [
        { label: "used", values: rows.map((row) => amount(row?.used)), colour: "--own", fill: true },
        { label: "guaranteed", values: rows.map((row) => amount(row?.guaranteed)), colour: "--ink", dash: [2, 3] },
        { label: "pending", values: rows.map((row) => amount(row?.pending)), colour: "--pending", dash: [6, 3] },
      ],
    };
  }, [points, resource]);
  return <Series label={`${short(resource)} used, guaranteed and pending`} at={at} lines={lines} seconds={seconds} />;
}

function Policy({ queue }: { queue: Row }) {
  const rows = [...Object.entries(queue.policy), ...Object.entries(queue.access)];
  return (
    <>
      <p>
        {queue.namespaces.length
          ? `For namespaces ${queue.namespaces.join(", ")}.`
          : "Nobody may use it: no queue on its path names a namespace."}
      </p>
      <table className="plain">
        <tbody>
          {rows.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{typeof value === "string" ? value : JSON.stringify(value)}</td>
            </tr>
          ))}
          {queue.quota.map((row) => (
            <tr key={`${row.flavor}${row.resource}`}>
              <th scope="row">
                quota {short(row.resource)} {row.flavor && <small>{row.flavor}</small>}
              </th>
              <td>
                guaranteed {row.guaranteed ?? "–"}, limit {row.limit ?? "–"}, lend {row.lend ?? "all"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function Changes({ path }: { path: string }) {
  const query = useQuery(queries.audit(path));
  return (
    <Answer query={query}>
      {(data) =>
        data.items.length === 0 ? (
          <Empty>No change of this queue that you may see.</Empty>
        ) : (
          <Entries items={data.items} />
        )
      }
    </Answer>
  );
}

/** Decisions. In ten seconds: are there any, are they fast, what was left out and why. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useEffect, useMemo } from "react";
import * as queries from "../api/queries";
import type { components } from "../api/schema";
import { usePreferences } from "../app/preferences";
import { Ago, At } from "../kit/Ago";
import { CopyAs } from "../kit/CopyAs";
import { Heads } from "../kit/Heads";
import { Answer, Empty, Panel } from "../kit/Panel";
import { type Column, Table } from "../kit/Table";
import { Title } from "../kit/Title";
import { demand, grouped } from "../text/quantity";

type Cycle = components["schemas"]["Cycle"];
type CycleDetail = components["schemas"]["CycleDetail"];

/** What CP-SAT did, for who reads the word. */
const STATUSES: Record<string, string> = {
  GREEDY: "CP-SAT was not asked: nothing was contested.",
  OPTIMAL: "CP-SAT was asked, and what it answered is proven best.",
  FEASIBLE: "CP-SAT was asked; within its time it proved not all of its answer best, or found none.",
  FAILED: "CP-SAT was late, or its plan was refused: decided again without it.",
};
/** Counters of a decision, in words. */
const FIGURES: Partial<Record<keyof Stats, string>> = {
  turns: "gangs that had a turn",
  searches: "searches for victims",
  proved: "of these the least lost work that makes room (proved on the nodes looked at)",
  contested: "gangs that the repair was asked to fit in",
  repaired: "of these fitted in",
  refused: "gangs that the verifier took out",
  solver_time: "deterministic time of CP-SAT",
};

const STRIP = 200;

interface Stats {
  phases?: Record<string, number>;
  note?: string;
  fallback?: string;
  repaired?: number;
  refused?: number;
  turns?: number;
  searches?: number;
  proved?: number;
  contested?: number;
  solver_time?: number;
}

const stats = (cycle: Cycle) => cycle.stats as Stats;
const seconds = (cycle: Cycle) => Object.values(stats(cycle).phases ?? {}).reduce((sum, each) => sum + each, 0);
const took = (value: number) => (value >= 1 ? `${value.toFixed(2)} s` : `${(value * 1000).toFixed(0)} ms`);

const COLUMNS: readonly Column<Cycle>[] = [
  {
    id: "id",
    title: "cycle",
    width: "minmax(10ch, 1fr)",
    cell: (cycle) => (
      <Link to="/cycles/$id" params={{ id: String(cycle.id) }} tabIndex={-1}>
        {cycle.id}
      </Link>
    ),
  },
  { id: "age", title: "age", width: "minmax(8ch, 1fr)", cell: (cycle) => <Ago at={cycle.finished} /> },
  { id: "trigger", title: "because of", width: "minmax(14ch, 1fr)", cell: (cycle) => cycle.trigger },
  {
    id: "status",
    title: "status",
    width: "minmax(12ch, 1fr)",
    cell: (cycle) => <span title={STATUSES[cycle.status]}>{cycle.status}</span>,
  },
  { id: "took", title: "took", width: "minmax(9ch, 1fr)", number: true, cell: (cycle) => took(seconds(cycle)) },
  {
    id: "admitted",
    title: "admitted",
    width: "minmax(9ch, 1fr)",
    number: true,
    cell: (cycle) => grouped(cycle.admitted),
  },
  { id: "evicted", title: "evicted", width: "minmax(9ch, 1fr)", number: true, cell: (cycle) => grouped(cycle.evicted) },
  {
    id: "waiting",
    title: "left waiting",
    width: "minmax(11ch, 1fr)",
    number: true,
    cell: (cycle) => grouped(cycle.waiting),
  },
  { id: "note", title: "", width: "minmax(10ch, 2fr)", cell: (cycle) => stats(cycle).fallback || stats(cycle).note },
];

export function Cycles() {
  const query = useInfiniteQuery(queries.cycles());
  const navigate = useNavigate();
  const items = useMemo(() => query.data?.pages.flatMap((page) => page.items), [query.data]);
  return (
    <>
      <Title hidden>Cycles</Title>
      <Panel title="Cycles" query={{ ...query, data: items }} tools={<CopyAs queuer="cycles" curl="/api/v1/cycles" />}>
        {() =>
          items?.length ? (
            <>
              <Strip cycles={items} />
              <p className="soft">
                A decision that changed nothing is not kept: the numbers have holes, and the newest may be higher.
              </p>
              <Table
                label="Cycles"
                columns={COLUMNS}
                rows={items}
                id={(cycle) => String(cycle.id)}
                open={(cycle) => void navigate({ to: "/cycles/$id", params: { id: String(cycle.id) } })}
                more={query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : undefined}
              />
            </>
          ) : (
            <Empty>No cycle has been committed yet: nothing was there to decide.</Empty>
          )
        }
      </Panel>
    </>
  );
}

/** The newest cycles, oldest left: as high as they took long, marked where they admitted or evicted. */
function Strip({ cycles }: { cycles: readonly Cycle[] }) {
  const shown = cycles.slice(0, STRIP).toReversed();
  const longest = Math.max(...shown.map(seconds), 0.001);
  const [first, last] = [shown[0], shown.at(-1)];
  return (
    <figure className="series">
      <figcaption className="legend">
        up to {took(longest)}; <i className="key key-admits" /> admits <i className="key key-evicts" /> evicts{" "}
        <i className="key key-neither" /> neither
      </figcaption>
      <div
        className="strip-plot"
        role="group"
        aria-label={`Time of the last ${shown.length} cycles, at most ${took(longest)}`}
      >
        {shown.map((cycle) => (
          <Link
            key={cycle.id}
            to="/cycles/$id"
            params={{ id: String(cycle.id) }}
            tabIndex={-1}
            className={cycle.evicted ? "evicts" : cycle.admitted ? "admits" : ""}
            style={{ height: `${Math.max(4, (seconds(cycle) / longest) * 100)}%` }}
            title={`cycle ${cycle.id}: ${took(seconds(cycle))}, ${cycle.status}, ${cycle.admitted} admitted, ${cycle.evicted} evicted`}
          />
        ))}
      </div>
      {first && last && (
        <div className="row strip-ends">
          <small>
            <Ago at={first.finished} suffix=" ago" />
          </small>
          <span className="spring" />
          <small>
            <Ago at={last.finished} suffix=" ago" />
          </small>
        </div>
      )}
    </figure>
  );
}

/** Whom it moved, of those that one may read. */
function Decisions({ of }: { of: CycleDetail }) {
  if (of.admitted + of.evicted === 0) return <p className="soft">It admitted and evicted nobody.</p>;
  const left = of.admitted + of.evicted - of.decisions.length;
  return (
    <>
      <table className="plain">
        <Heads titles={["job", "queue", "asks for", "what"]} />
        <tbody>
          {of.decisions.map((each) => (
            <tr key={each.uid + each.to}>
              <th scope="row" className="target">
                <Link to="/jobs/$uid" params={{ uid: each.uid }}>
                  {each.name}
                </Link>{" "}
                <small>{each.namespace}</small>
              </th>
              <td className="target">
                <Link to="/queues/$path" params={{ path: each.queue }}>
                  {each.queue}
                </Link>
              </td>
              <td>{demand(each.amounts)}</td>
              <td>{each.text}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {left > 0 && (
        <p className="soft">
          {grouped(left)} more: of namespaces that you may not read, no longer kept, or beyond the first 50.
        </p>
      )}
    </>
  );
}

export function CycleScreen() {
  const { id } = useParams({ from: "/cycles/$id" });
  const query = useQuery(queries.cycle(Number(id)));
  const { before, after } = query.data ?? {};
  const navigate = useNavigate();
  const { keys } = usePreferences();
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const next = { "[": before, "]": after }[event.key];
      if (keys && next != null && !(event.target instanceof HTMLInputElement)) {
        void navigate({ to: "/cycles/$id", params: { id: String(next) } });
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [keys, navigate, before, after]);
  return (
    <>
      <Title>Cycle {id}</Title>
      <p className="soft">
        <Link to="/cycles">All cycles</Link>
        {before != null && (
          <>
            {" · "}
            <kbd>[</kbd>{" "}
            <Link to="/cycles/$id" params={{ id: String(before) }}>
              {before}
            </Link>
          </>
        )}
        {after != null && (
          <>
            {" · "}
            <kbd>]</kbd>{" "}
            <Link to="/cycles/$id" params={{ id: String(after) }}>
              {after}
            </Link>
          </>
        )}
      </p>
      <Answer query={query}>{(cycle) => <Shown cycle={cycle} />}</Answer>
    </>
  );
}

function Shown({ cycle }: { cycle: CycleDetail }) {
  const { phases = {}, ...rest } = stats(cycle);
  const figures = Object.entries(FIGURES).filter(([name]) => name in rest);
  const total = seconds(cycle);
  return (
    <section className="panel">
      <div className="panel-head">
        <h2>
          {cycle.status.toLowerCase()}, because of {cycle.trigger}
        </h2>
        <div className="panel-tools">
          <CopyAs queuer={`cycles show ${cycle.id}`} curl={`/api/v1/cycles/${cycle.id}`} />
          {cycle.replayable && <CopyAs queuer={`cycles replay ${cycle.id}`} />}
        </div>
      </div>
      <p>
        {grouped(cycle.admitted)} admitted, {grouped(cycle.evicted)} evicted, {grouped(cycle.waiting)} left waiting;
        begun <At at={cycle.started} />. {STATUSES[cycle.status]}
      </p>
      <Decisions of={cycle} />
      <div className="phases" aria-hidden="true">
        {Object.entries(phases).map(([name, value]) => (
          <i key={name} style={{ flexGrow: value * 1000 }} title={`${name} ${took(value)}`}>
            {name}
          </i>
        ))}
      </div>
      <table className="plain facts">
        <tbody>
          {Object.entries(phases).map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td className="number">{took(value)}</td>
            </tr>
          ))}
          <tr>
            <th scope="row">in all</th>
            <td className="number">{took(total)}</td>
          </tr>
        </tbody>
      </table>
      <details>
        <summary>figures</summary>
        <table className="plain facts">
          <tbody>
            {figures.map(([name, words]) => (
              <tr key={name}>
                <th scope="row">{words}</th>
                <td className="number">{String(rest[name as keyof typeof rest])}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </section>
  );
}

/** Every job that one may see, narrowed by words in the address. */

import { quoted } from "../text/shell";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import * as queries from "../api/queries";
import { lacking, may, type Verb } from "../api/rights";
import { Failure } from "../api/client";
import type { State, Verdict, Workload } from "../api/schema";
import type { View } from "../app/preferences";
import { Check } from "../kit/Check";
import { Columns } from "../kit/Columns";
import { CopyAs } from "../kit/CopyAs";
import { Filter } from "../kit/Filter";
import { JOB_COLUMNS, JobTable, MORE_COLUMNS } from "../kit/JobTable";
import { Empty, Panel } from "../kit/Panel";
import { Title } from "../kit/Title";
import { Views } from "../kit/Views";
import { grouped } from "../text/quantity";
import { GROUPINGS, JobGroups } from "./JobGroups";
import { Ask, WORDS } from "./job/Ask";

const STATES: readonly State[] = [
  "Queued",
  "Held",
  "Admitted",
  "Placing",
  "Running",
  "Evicting",
  "Succeeded",
  "Failed",
];
const VERDICTS: readonly Verdict[] = ["CHANGE", "ESCALATE", "WAIT", "HELD"];
const COLUMNS = [...JOB_COLUMNS, ...MORE_COLUMNS];
const USUAL = JOB_COLUMNS.map((column) => column.id);
const NARROWS = ["name", "user", "queue", "namespace", "reason"] as const;
/** Of these a part is enough. */
const PARTS = ["name", "user"];

export function Jobs() {
  const search = useSearch({ from: "/jobs" });
  const navigate = useNavigate({ from: "/jobs" });
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  const { deleted, columns, group, ...words } = search;
  const by = GROUPINGS.find((each) => each === group);
  const shown = new Set(["name", ...(columns?.split(",") ?? USUAL)]);
  const [marked, setMarked] = useState<ReadonlySet<string>>(new Set());
  const filter: queries.JobFilter = { ...words, ...(deleted && { deleted: true }) };
  const query = useInfiniteQuery(queries.jobs(filter));
  const jobs = useMemo(() => query.data?.pages.flatMap((page) => page.items), [query.data]);
  // A list behind a number has as many rows as it said, or says where the others are.
  const others = search.verdict || search.reason || search.unstartable ? (query.data?.pages[0]?.others ?? 0) : 0;
  const { state: _, ...anyState } = words;
  const { data: byState } = useQuery(queries.jobGroups(anyState, "state"));
  const counts = new Map(byState?.groups?.map((each) => [each.key, each.jobs]));
  const states = new Set(search.state?.split(",") ?? []);
  const toggle = (state: State) => {
    if (!states.delete(state)) states.add(state);
    set({ state: [...states].join(",") });
  };
  const flags = [
    ["-q", search.queue],
    ["-n", search.namespace],
    ["--state", search.state],
    ["--reason", search.reason],
    ["--verdict", search.verdict],
  ] as const;
  const command = ["jobs", ...flags.flatMap(([flag, value]) => (value ? [flag, quoted(value)] : []))].join(" ");
  const { data: queues } = useQuery({ ...queries.queues(), enabled: false });
  const known: Partial<Record<string, readonly string[]>> = {
    queue: queues?.items.map((queue) => queue.path) ?? [],
    namespace: [...new Set(jobs?.map((job) => job.namespace))],
    reason: [...new Set(jobs?.flatMap((job) => job.reason?.token ?? []))],
  };
  // A queue that is not there is a filter that nothing matches.
  const unknown = query.error instanceof Failure && query.error.status === 404 ? query.error : undefined;
  const shownQuery = unknown ? { ...query, error: null, data: [] } : { ...query, data: jobs };
  return (
    <>
      <Title hidden>Jobs</Title>
      <Panel
        title="Jobs"
        className="fills"
        query={shownQuery}
        tools={
          <>
            <Views now={search as View} go={(view) => void navigate({ search: view })} />
            <Columns
              all={COLUMNS}
              shown={shown}
              show={(ids) => set({ columns: ids.join() === USUAL.join() ? "" : ids.join() })}
            />
            <CopyAs
              queuer={command}
              curl={`/api/v1/workloads?${new URLSearchParams(queries.wanted(filter) as Record<string, string>)}`}
            />
          </>
        }
        above={
          <div className="row filters">
            {NARROWS.map((name, index) => (
              <Filter
                key={name}
                label={name}
                hint={PARTS.includes(name) ? "a part is enough; * stands for any text" : ""}
                value={search[name] ?? ""}
                set={(value) => set({ [name]: value })}
                search={index === 0}
                width="18ch"
                options={known[name] ?? []}
              />
            ))}
            <span className="choice" role="group" aria-label="States">
              {STATES.map((state) => (
                <button key={state} type="button" aria-pressed={states.has(state)} onClick={() => toggle(state)}>
                  {state} {counts.has(state) && <small>{grouped(counts.get(state) ?? 0)}</small>}
                </button>
              ))}
            </span>
            <label>
              verdict{" "}
              <select value={search.verdict ?? ""} onChange={(event) => set({ verdict: event.target.value })}>
                <option value="">any</option>
                {VERDICTS.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            </label>
            <label>
              group by{" "}
              <select value={by ?? ""} onChange={(event) => set({ group: event.target.value })}>
                <option value="">nothing</option>
                {GROUPINGS.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            </label>
            <Check on={search.unstartable === "true"} set={(on) => set({ unstartable: on ? "true" : "" })}>
              that can never start
            </Check>
            <Check on={deleted === "true"} set={(on) => set({ deleted: on ? "true" : "" })}>
              also deleted ones
            </Check>
          </div>
        }
      >
        {() =>
          unknown ? (
            <Empty>
              {unknown.message}.{" "}
              <button type="button" onClick={() => set({ queue: "" })}>
                Leave the queue out
              </button>
            </Empty>
          ) : by ? (
            <JobGroups filter={words} by={by} />
          ) : (
            <>
              <Marked jobs={jobs?.filter((job) => marked.has(job.uid)) ?? []} forget={() => setMarked(new Set())} />
              {jobs?.length ? (
                <JobTable
                  label="Jobs"
                  jobs={jobs}
                  columns={COLUMNS.filter((column) => shown.has(column.id))}
                  marks={{ ids: marked, set: setMarked }}
                  more={query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : undefined}
                  {...(query.hasNextPage && { count: -1 })}
                />
              ) : (
                <None search={words} clear={() => void navigate({ search: {}, replace: true })} />
              )}
              {others > 0 && <p className="soft">{grouped(others)} more in namespaces that you may not read.</p>}
            </>
          )
        }
      </Panel>
    </>
  );
}

/** As many as the API takes at once. */
const MOST = 500;

/** What can be done to the marked jobs together; each is answered for itself. */
function Marked({ jobs, forget }: { jobs: readonly Workload[]; forget: () => void }) {
  const [asked, setAsked] = useState<{ verb: Verb; jobs: readonly Workload[] }>();
  const { data: me } = useQuery(queries.me());
  if (jobs.length === 0 && !asked) return null;
  return (
    <div className="row marked" role="group" aria-label="Marked jobs">
      <span role="status">{jobs.length} marked</span>
      {(Object.keys(WORDS) as Verb[]).map((verb) => {
        const none = jobs[0] && !jobs.some((job) => may(me, verb, job)) ? lacking(verb, jobs[0]) : undefined;
        return (
          <button
            key={verb}
            type="button"
            disabled={jobs.length > MOST || !!none}
            title={none}
            onClick={() => setAsked({ verb, jobs })}
          >
            {WORDS[verb].title}
          </button>
        );
      })}
      <button type="button" className="quiet" onClick={forget}>
        Mark none
      </button>
      {jobs.length > MOST && <small>at most {MOST} at once</small>}
      {asked && <Ask {...asked} close={() => setAsked(undefined)} />}
    </div>
  );
}

function None({ search, clear }: { search: Record<string, string | undefined>; clear: () => void }) {
  const words = Object.entries(search)
    .filter(([, value]) => value)
    .map(([name, value]) => `${name}=${value}`);
  if (words.length === 0) return <Empty>There is no job in the namespaces that you may read.</Empty>;
  return (
    <Empty>
      No job matches <code>{words.join(" ")}</code>.{" "}
      <button type="button" onClick={clear}>
        Show all
      </button>
    </Empty>
  );
}

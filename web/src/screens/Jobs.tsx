/** Every job that one may see, narrowed by words in the address. */

import { quoted } from "../text/shell";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import * as queries from "../api/queries";
import type { State } from "../api/schema";
import { CopyAs } from "../kit/CopyAs";
import { Filter } from "../kit/Filter";
import { JobTable } from "../kit/JobTable";
import { Empty, Panel } from "../kit/Panel";

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
const NARROWS = ["queue", "namespace", "name", "reason"] as const;

export function Jobs() {
  const search = useSearch({ from: "/jobs" });
  const navigate = useNavigate({ from: "/jobs" });
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  const { deleted, ...words } = search;
  const filter: queries.JobFilter = { ...words, ...(deleted && { deleted: true }) };
  const query = useInfiniteQuery(queries.jobs(filter));
  const jobs = useMemo(() => query.data?.pages.flatMap((page) => page.items), [query.data]);
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
  ] as const;
  const command = ["jobs", ...flags.flatMap(([flag, value]) => (value ? [flag, quoted(value)] : []))].join(" ");
  return (
    <>
      <h1 className="visually-hidden">Jobs</h1>
      <Panel
        title="Jobs"
        query={{ ...query, data: jobs } as never}
        tools={
          <CopyAs
            queuer={command}
            curl={`/api/v1/workloads?${new URLSearchParams(search as Record<string, string>)}`}
          />
        }
      >
        {() => (
          <>
            <div className="row filters">
              {NARROWS.map((name, index) => (
                <Filter
                  key={name}
                  label={name}
                  value={search[name] ?? ""}
                  set={(value) => set({ [name]: value })}
                  search={index === 0}
                />
              ))}
              <span className="choice" role="group" aria-label="States">
                {STATES.map((state) => (
                  <button key={state} type="button" aria-pressed={states.has(state)} onClick={() => toggle(state)}>
                    {state}
                  </button>
                ))}
              </span>
              <label>
                <input
                  type="checkbox"
                  checked={deleted === "true"}
                  onChange={(event) => set({ deleted: event.target.checked ? "true" : "" })}
                />{" "}
                also deleted ones
              </label>
            </div>
            {jobs?.length ? (
              <JobTable
                label="Jobs"
                jobs={jobs}
                more={query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : undefined}
                {...(query.hasNextPage && { count: -1 })}
              />
            ) : (
              <None search={search} clear={() => void navigate({ search: {}, replace: true })} />
            )}
          </>
        )}
      </Panel>
    </>
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

/** The tree of queues: who uses whose quota, and who waits although entitled; now, or at a moment of the past. */

import { path, sh } from "../text/shell";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import * as queries from "../api/queries";
import { useNow } from "../app/now";
import { Check } from "../kit/Check";
import { CopyAs } from "../kit/CopyAs";
import { Filter } from "../kit/Filter";
import { Empty, Panel } from "../kit/Panel";
import { BarLegend } from "../kit/QuotaBar";
import { ResourcePicker } from "../kit/ResourcePicker";
import { Scrubber } from "../kit/Scrubber";
import { Title } from "../kit/Title";
import { type Shown, asShown } from "../kit/past";
import { useResource } from "../kit/resource";
import { amount } from "../text/quantity";
import { clock } from "../text/time";
import { rows as treeRows } from "./tree";
import { Tree } from "./TreeGrid";

interface Moment {
  items: readonly Shown[];
  /** Of the figures; undefined: they are live, null: none are kept of the time asked for. */
  at: string | null | undefined;
}

export function Queues() {
  const search = useSearch({ from: "/queues" });
  const navigate = useNavigate({ from: "/queues" });
  const set = (change: Partial<Record<keyof typeof search, string | undefined>>) =>
    void navigate({ search: (old) => ({ ...old, ...change }) as typeof search, replace: true });
  // One and the same at each drawing, or all rows would be drawn anew.
  const toggle = useCallback(
    (path: string) => {
      const turned = ({ closed }: typeof search) => {
        const paths = pathsOf(closed);
        if (!paths.delete(path)) paths.add(path);
        return [...paths].join(",");
      };
      void navigate({ search: (old) => ({ ...old, closed: turned(old) }), replace: true });
    },
    [navigate],
  );
  // What is no moment is told, and not asked for.
  const wrong = search.at !== undefined && Number.isNaN(Date.parse(search.at)) ? search.at : undefined;
  const at = wrong === undefined ? search.at : undefined;
  const live = useQuery({ ...queries.queues(), enabled: at === undefined });
  const past = useQuery({ ...queries.pastQueues(at ?? ""), enabled: at !== undefined });
  const query = at === undefined ? live : past;
  const data = useMemo<Moment | undefined>(() => {
    if (at === undefined) return live.data && { items: live.data.items, at: undefined };
    return past.data && { items: asShown(past.data), at: past.data.at };
  }, [at, live.data, past.data]);
  const { names, resource = "", unknown } = useResource(search.resource, data?.items);
  const asked = at === undefined ? "/api/v1/queues" : path`/api/v1/queue-history?at=${at}`;
  return (
    <>
      <Title hidden>Queues</Title>
      <Panel
        title="Queues"
        className="fills"
        query={{ ...query, data }}
        tools={
          <>
            <Filter label="Find a queue" search value={search.find ?? ""} set={(find) => set({ find })} />
            <ResourcePicker
              names={names}
              chosen={resource || undefined}
              unknown={unknown}
              choose={(name) => set({ resource: name })}
            />
            <Check on={search.only === "attention"} set={(on) => set({ only: on ? "attention" : "" })}>
              only what needs somebody
            </Check>
            <Check on={search.scale === "own"} set={(on) => set({ scale: on ? "own" : "" })}>
              each bar on its own scale
            </Check>
            <Scrubber at={at} set={(at) => set({ at })} />
            <CopyAs queuer={sh`queue tree --resource ${resource}`} curl={asked} />
          </>
        }
      >
        {(moment: Moment) => {
          const shown = treeRows(moment.items, {
            closed: pathsOf(search.closed),
            find: search.find ?? "",
            keep: search.only === "attention" ? needsSomebody : undefined,
          });
          return (
            <>
              {wrong !== undefined && (
                <p className="not-live" role="status">
                  <b>{wrong} is no moment.</b> This is how it is now.{" "}
                  <button type="button" onClick={() => set({ at: undefined })}>
                    Forget it
                  </button>
                </p>
              )}
              {moment.at !== undefined && <NotLive at={moment.at} />}
              {shown.length > 0 ? (
                <>
                  <Tree rows={shown} resource={resource} own={search.scale === "own"} toggle={toggle} />
                  <BarLegend />
                </>
              ) : (
                moment.at !== null && (
                  <Empty>
                    0 of {moment.items.length} queues match.{" "}
                    <button type="button" onClick={() => set({ find: "", only: "" })}>
                      Show all
                    </button>
                  </Empty>
                )
              )}
            </>
          );
        }}
      </Panel>
    </>
  );
}

function pathsOf(closed: string | undefined): Set<string> {
  return new Set((closed ?? "").split(",").filter(Boolean));
}

function NotLive({ at }: { at: string | null }) {
  const now = useNow();
  return (
    <p className="not-live" role="status">
      {at === null ? (
        <>Nothing is kept of this time or the two hours before: nobody led, or it is too long ago.</>
      ) : (
        <>
          <b>As of {clock(at, now)}, not live.</b> Not kept of that time: who was starved, how long the oldest had
          waited, and the capacity of the cluster as the limit of root.
        </>
      )}
    </p>
  );
}

function needsSomebody(queue: Shown): boolean {
  return queue.unstartableWorkloads > 0 || queue.accounts.some((each) => each.starved || amount(each.overLimit) > 0);
}

/** Who waits here, in the order of the last cycle. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import * as queries from "../../api/queries";
import type { InLine, Others, Reason } from "../../api/schema";
import { Answer, Empty } from "../../kit/Panel";
import { Why } from "../../kit/Why";
import { demand } from "../../text/quantity";

export function Line({ path }: { path: string }) {
  const query = useInfiniteQuery(queries.pending(path));
  const items = useMemo(() => query.data?.pages.flatMap((page) => page.items), [query.data]);
  return (
    <Answer query={{ ...query, data: items }}>
      {() =>
        items?.length ? (
          <>
            <p className="soft">In the order of the last cycle.</p>
            {runs(items).map((run) => (
              <section key={keyOf(run.items[0]!)}>
                {run.reason && (
                  <p className="run">
                    <Why of={run.reason} />
                  </p>
                )}
                <ol className="list">
                  {run.items.map((item) =>
                    "gangs" in item ? <Strangers key={keyOf(item)} of={item} /> : <Known key={keyOf(item)} of={item} />,
                  )}
                </ol>
              </section>
            ))}
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

type Item = InLine | Others;

const keyOf = (item: Item) => ("gangs" in item ? `o${item.first}` : item.workload.uid);

interface Run {
  reason: Reason | null;
  items: Item[];
}

/** Neighbours that wait for the same: the sentence is said once, above them. */
function runs(items: readonly Item[]): Run[] {
  const found: Run[] = [];
  for (const item of items) {
    const reason = "gangs" in item ? null : item.workload.reason;
    const last = found.at(-1);
    if (last && last.reason?.text === reason?.text && last.reason?.token === reason?.token) last.items.push(item);
    else found.push({ reason, items: [item] });
  }
  return found;
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
      </small>
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

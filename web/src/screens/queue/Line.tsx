/** Who waits here, in the order of the last cycle. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import * as queries from "../../api/queries";
import type { InLine, Others } from "../../api/schema";
import { Chip } from "../../kit/Chip";
import { Answer, Empty } from "../../kit/Panel";
import { demand } from "../../text/quantity";

export function Line({ path }: { path: string }) {
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

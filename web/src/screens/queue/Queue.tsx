/** One queue. In ten seconds: how much may still start there, who is ahead, what changed. */

import { type UseQueryResult, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Failure } from "../../api/client";
import * as queries from "../../api/queries";
import type { QueueDetail } from "../../api/schema";
import { Answer, Part } from "../../kit/Panel";
import { Tabs } from "../../kit/Tabs";
import { Title } from "../../kit/Title";
import { Accounts } from "./Accounts";
import { Changes } from "./Changes";
import { Head } from "./Head";
import { Line } from "./Line";
import { Past } from "./Past";
import { Policy } from "./Policy";
import { Room } from "./Room";
import { Running } from "./Running";
import { type Tab, tabsFor } from "./tabs";

export function Queue() {
  const { path } = useParams({ from: "/queues/$path" });
  const search = useSearch({ from: "/queues/$path" });
  const navigate = useNavigate({ from: "/queues/$path" });
  const query = useQuery(queries.queue(path));
  const { data: me } = useQuery(queries.me());
  const tabs = tabsFor(me);
  const tab = tabs.find((each) => each === search.tab) ?? "Pending";
  if (query.error && !query.data) return <Missing path={path} query={query} />;
  return (
    <Answer query={query}>
      {(queue) => (
        <>
          <Head queue={queue} />
          {queue.leaf && queue.effectiveState === "open" && <Room path={path} />}
          <section className="panel" aria-label="Quota">
            <Accounts queue={queue} />
          </section>
          <Tabs
            label="Parts"
            names={tabs}
            chosen={tab}
            choose={(name) => void navigate({ search: (old) => ({ ...old, tab: name }), replace: true })}
          >
            <Opened tab={tab} queue={queue} />
          </Tabs>
        </>
      )}
    </Answer>
  );
}

/** A queue that cannot be shown. Of one that was deleted the changes are kept. */
function Missing({ path, query }: { path: string; query: UseQueryResult<QueueDetail> }) {
  const gone = query.error instanceof Failure && query.error.status === 404;
  return (
    <>
      <Title>{path}</Title>
      <Answer query={query}>{() => null}</Answer>
      {gone && (
        <Part title="What was changed under this name" tools={<Link to="/queues">All queues</Link>}>
          <Changes path={path} />
        </Part>
      )}
    </>
  );
}

function Opened({ tab, queue }: { tab: Tab; queue: QueueDetail }) {
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

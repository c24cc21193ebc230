/** What happened, and who did what and why: kept longer than Kubernetes keeps its Events. */

import { useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import * as queries from "../api/queries";
import type { AuditEntry, EventItem } from "../api/schema";
import { At } from "../kit/Ago";
import { CopyAs } from "../kit/CopyAs";
import { Filter } from "../kit/Filter";
import { Heads } from "../kit/Heads";
import { Empty, Panel } from "../kit/Panel";
import { Path } from "../kit/Path";
import { type Column, Table } from "../kit/Table";
import { Title } from "../kit/Title";

const EVENTS: readonly Column<EventItem>[] = [
  { id: "at", title: "time", width: "17ch", cell: (event) => <At at={event.at} /> },
  {
    id: "text",
    title: "what happened",
    width: "minmax(24ch, 5fr)",
    cell: (event) => <span title={event.text}>{event.text}</span>,
  },
  {
    id: "job",
    title: "job",
    width: "minmax(18ch, 2fr)",
    cell: (event) =>
      event.uid && (
        <Link to="/jobs/$uid" params={{ uid: event.uid }} tabIndex={-1}>
          {event.job ? (
            <>
              {event.job.name} <small>{event.job.namespace}</small>
            </>
          ) : (
            event.uid.slice(0, 8)
          )}
        </Link>
      ),
  },
  {
    id: "queue",
    title: "queue",
    width: "minmax(20ch, 2fr)",
    cell: (event) =>
      event.queue && (
        <Link to="/queues/$path" params={{ path: event.queue }} tabIndex={-1}>
          <Path of={event.queue} />
        </Link>
      ),
  },
  { id: "by", title: "by", width: "14ch", cell: (event) => <Cause of={event.data} /> },
  { id: "type", title: "type", width: "22ch", cell: (event) => event.type },
];

/** Who or what it comes from. */
function Cause({ of: { by, cycle } }: { of: EventItem["data"] }) {
  const { data: me } = useQuery(queries.me());
  if (by) return String(by);
  if (cycle === undefined || cycle === null) return null;
  if (!me?.readsCycles) return `cycle ${String(cycle)}`;
  return (
    <Link to="/cycles/$id" params={{ id: String(cycle) }} tabIndex={-1}>
      cycle {String(cycle)}
    </Link>
  );
}

export function Events() {
  const search = useSearch({ from: "/events" });
  const navigate = useNavigate({ from: "/events" });
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  const query = useInfiniteQuery(queries.events(search));
  const { data: me } = useQuery(queries.me());
  const items = useMemo(() => query.data?.pages.flatMap((page) => page.items), [query.data]);
  return (
    <>
      <Title hidden>Events</Title>
      <Panel
        title="Events"
        query={{ ...query, data: items }}
        tools={
          <>
            <Filter label="type" search value={search.type ?? ""} set={(type) => set({ type })} />
            <Filter label="queue" value={search.queue ?? ""} set={(queue) => set({ queue })} />
            {me?.readsAudit && <Link to="/audit">Audit</Link>}
            <Export path="events" of={search} />
            <CopyAs
              queuer="events -w"
              curl={`/api/v1/events?${new URLSearchParams(search as Record<string, string>)}`}
            />
          </>
        }
      >
        {() =>
          items?.length ? (
            <Table
              label="Events"
              columns={EVENTS}
              rows={items}
              id={(event) => String(event.id)}
              more={query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : undefined}
            />
          ) : (
            <Empty>No event that you may see matches.</Empty>
          )
        }
      </Panel>
    </>
  );
}

/** The list of entries, as a file. */
function Export({ path, of }: { path: "events" | "audit"; of: Record<string, string | undefined> }) {
  const download = useMutation({
    mutationFn: async () => {
      const asked = new URLSearchParams({ ...(of as Record<string, string>), limit: "1000" });
      const answer = await fetch(`/api/v1/${path}?${asked}`);
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const file = URL.createObjectURL(await answer.blob());
      Object.assign(document.createElement("a"), { href: file, download: `${path}.json` }).click();
      URL.revokeObjectURL(file);
    },
  });
  return (
    <button
      type="button"
      className="quiet"
      title="the newest 1000 as JSON"
      disabled={download.isPending}
      onClick={() => download.mutate()}
    >
      {download.error ? download.error.message : "download"}
    </button>
  );
}

export function Audit() {
  const search = useSearch({ from: "/audit" });
  const navigate = useNavigate({ from: "/audit" });
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  const query = useQuery(queries.auditOf(search));
  return (
    <>
      <Title hidden>Audit</Title>
      <Panel
        title="Audit"
        query={query}
        tools={
          <>
            <Filter label="queue or job" search value={search.target ?? ""} set={(target) => set({ target })} />
            <Filter label="who" value={search.actor ?? ""} set={(actor) => set({ actor })} />
            <Link to="/events">Events</Link>
            <Export path="audit" of={search} />
            <CopyAs queuer="audit" curl="/api/v1/audit" />
          </>
        }
      >
        {(data) =>
          data.items.length === 0 ? (
            <Empty>No entry that you may see matches.</Empty>
          ) : (
            <>
              <Entries items={data.items} />
              {data.next !== null && (
                <p className="soft">There is more: narrow by queue or name, or use queuer audit.</p>
              )}
            </>
          )
        }
      </Panel>
    </>
  );
}

/** As many queues of one change as are named; its revision has all. */
const MOST_QUEUES = 5;

export function Entries({ items }: { items: readonly AuditEntry[] }) {
  return (
    <table className="plain">
      <Heads titles={["time", "who", "what", "where", "why"]} />
      <tbody>
        {items.map((entry) => (
          <tr key={entry.id}>
            <td>
              <At at={entry.at} />
            </td>
            <th scope="row">
              {entry.actor} <small>{entry.source}</small>
            </th>
            <td>
              {entry.text} <small>{entry.action}</small>
              {entry.revision !== null && (
                <>
                  {" "}
                  <Link to="/edit/$id" params={{ id: String(entry.revision) }}>
                    revision {entry.revision}
                  </Link>
                </>
              )}
            </td>
            <td>
              {entry.queues.slice(0, MOST_QUEUES).map((path) => (
                <div key={path} className="target whole">
                  <Link to="/queues/$path" params={{ path }}>
                    {path}
                  </Link>
                </div>
              ))}
              {entry.queues.length > MOST_QUEUES && <div>and {entry.queues.length - MOST_QUEUES} more</div>}
            </td>
            <td>{entry.reason || "–"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

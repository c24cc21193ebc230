/** Who is below what it deserves, who holds it, and by which figures queues are put in order. */

import { path, sh } from "../text/shell";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import * as queries from "../api/queries";
import type { FairShare as FairShareList, QueueShare } from "../api/schema";
import { Chip } from "../kit/Chip";
import { CopyAs } from "../kit/CopyAs";
import { Filter } from "../kit/Filter";
import { Empty, Panel } from "../kit/Panel";
import { type Column, Table } from "../kit/Table";
import { Title } from "../kit/Title";
import { amount, demand, short, told } from "../text/quantity";

type Pair = FairShareList["pairs"][number];

const PAIRS: readonly Column<Pair>[] = [
  { id: "starved", title: "queue", width: "minmax(24ch, 2fr)", cell: (pair) => <To path={pair.starved} /> },
  {
    id: "lacks",
    title: "lacks",
    width: "16ch",
    cell: (pair) => `${told(amount(pair.amount), pair.resource)} ${short(pair.resource)}`,
  },
  {
    id: "borrower",
    title: "which has borrowed it",
    width: "minmax(24ch, 3fr)",
    cell: (pair) => (pair.borrower ? <To path={pair.borrower} /> : "nobody: it is not borrowed"),
  },
];

const SHARES: readonly Column<QueueShare>[] = [
  { id: "queue", title: "queue", width: "minmax(26ch, 2fr)", cell: (share) => <Name of={share} /> },
  { id: "guaranteed", title: "guaranteed", width: "minmax(16ch, 1fr)", cell: (share) => amounts(share.guaranteed) },
  { id: "used", title: "used", width: "minmax(16ch, 1fr)", cell: (share) => amounts(share.used) },
  { id: "by", title: "by", width: "8ch", cell: ({ now }) => (now.resource ? short(now.resource) : "–") },
  figure("above", ({ now }) => quantity(now.excess, now.resource)),
  figure("capacity", ({ now }) => quantity(now.capacity, now.resource)),
  figure("weight", ({ now }) => now.weight),
  figure("share", ({ now }) => now.share.toFixed(3)),
  figure("past", ({ now }) => now.past.toFixed(3)),
  figure("score", ({ now }) => <b>{now.score.toFixed(3)}</b>),
];

export function FairShare() {
  const { root = "root" } = useSearch({ from: "/fair-share" });
  const navigate = useNavigate({ from: "/fair-share" });
  const query = useQuery(queries.fairShare(root));
  return (
    <>
      <Title hidden>Fair share</Title>
      <Panel
        title="Who lacks what it is guaranteed"
        query={query}
        tools={
          <>
            <Filter
              label="below queue"
              search
              value={root}
              set={(value) => void navigate({ search: { root: value }, replace: true })}
            />
            <CopyAs queuer={sh`share ${root}`} curl={path`/api/v1/fair-share?root=${root}`} />
          </>
        }
      >
        {(data) =>
          data.pairs.length === 0 ? (
            <Empty>No queue waits for work that its guarantee covers.</Empty>
          ) : (
            <Table
              label="Who lacks what it is guaranteed"
              columns={PAIRS}
              rows={data.pairs}
              id={(pair) => `${pair.starved} ${pair.borrower} ${pair.resource}`}
            />
          )
        }
      </Panel>
      <Panel title="How queues are compared" query={query}>
        {(data) => (
          <>
            <p className="soft">
              Share = above its guarantee / capacity / weight, of the resource where that is most; score = share + past
              use. The lower score goes first; whoever is within a guarantee goes before all scores.
            </p>
            {data.items.length === 0 ? (
              <Empty>No queue is below {root}: there is nothing to compare.</Empty>
            ) : (
              <Table label="How queues are compared" columns={SHARES} rows={data.items} id={(share) => share.path} />
            )}
          </>
        )}
      </Panel>
    </>
  );
}

function figure(title: string, cell: Column<QueueShare>["cell"]): Column<QueueShare> {
  return { id: title, title, width: "9ch", number: true, cell };
}

function quantity(text: string | null | undefined, resource: string | null | undefined): string {
  return text == null ? "–" : told(amount(text), resource ?? "");
}

function amounts(of: Record<string, string>) {
  const text = demand(of);
  return <span title={text}>{text}</span>;
}

function To({ path }: { path: string }) {
  return (
    <Link to="/queues/$path" params={{ path }} tabIndex={-1}>
      {path}
    </Link>
  );
}

/** Below its parent, as in the tree. */
function Name({ of }: { of: QueueShare }) {
  const depth = of.path.split(".").length - 2;
  return (
    <span style={{ paddingInlineStart: `${depth * 1.2}rem` }}>
      <Link to="/queues/$path" params={{ path: of.path }} title={of.path} tabIndex={-1}>
        {of.path.slice(of.path.lastIndexOf(".") + 1)}
      </Link>{" "}
      {of.entitled && <Chip word="info" label="entitled" />}
    </span>
  );
}

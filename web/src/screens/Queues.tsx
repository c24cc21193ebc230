/** The tree of queues: who uses whose quota, and who waits although entitled. */

import { sh } from "../text/shell";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type KeyboardEvent, useMemo, useRef, useState } from "react";
import * as queries from "../api/queries";
import type { Account, Queue } from "../api/schema";
import { Ago } from "../kit/Ago";
import { Chip } from "../kit/Chip";
import { CopyAs } from "../kit/CopyAs";
import { Empty, Panel } from "../kit/Panel";
import { BarLegend, QuotaBar, amounts, reach } from "../kit/QuotaBar";
import { ResourcePicker, mainResource } from "../kit/ResourcePicker";
import { Title } from "../kit/Title";
import { amount, grouped, short } from "../text/quantity";
import { type TreeRow, rows as treeRows } from "./tree";

export function Queues() {
  const query = useQuery(queries.queues());
  const search = useSearch({ from: "/queues" });
  const navigate = useNavigate({ from: "/queues" });
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  const names = useMemo(() => resources(query.data?.items ?? []), [query.data]);
  const resource = search.resource ?? mainResource(names);
  return (
    <>
      <Title hidden>Queues</Title>
      <Panel
        title="Queues"
        query={query}
        tools={
          <>
            <input
              type="search"
              data-search
              placeholder="find a queue"
              aria-label="Find a queue"
              value={search.find ?? ""}
              onChange={(event) => set({ find: event.target.value })}
            />
            <ResourcePicker names={names} chosen={resource} choose={(name) => set({ resource: name })} />
            <label>
              <input
                type="checkbox"
                checked={search.only === "attention"}
                onChange={(event) => set({ only: event.target.checked ? "attention" : "" })}
              />{" "}
              only what needs somebody
            </label>
            <label>
              <input
                type="checkbox"
                checked={search.scale === "own"}
                onChange={(event) => set({ scale: event.target.checked ? "own" : "" })}
              />{" "}
              each bar on its own scale
            </label>
            <CopyAs queuer={sh`queue tree --resource ${resource}`} curl="/api/v1/queues" />
          </>
        }
      >
        {(data) => {
          const closed = new Set((search.closed ?? "").split(",").filter(Boolean));
          const shown = treeRows(data.items, {
            closed,
            find: search.find ?? "",
            keep: search.only === "attention" ? needsSomebody : undefined,
          });
          if (shown.length === 0) {
            return (
              <Empty>
                0 of {data.items.length} queues match.{" "}
                <button type="button" onClick={() => set({ find: "", only: "" })}>
                  Show all
                </button>
              </Empty>
            );
          }
          const toggle = (path: string) => {
            if (!closed.delete(path)) closed.add(path);
            set({ closed: [...closed].join(",") });
          };
          return <Tree rows={shown} resource={resource} own={search.scale === "own"} toggle={toggle} />;
        }}
      </Panel>
    </>
  );
}

function needsSomebody(queue: Queue): boolean {
  return (
    queue.misconfiguredWorkloads > 0 ||
    queue.accounts.some((each) => each.starved || (each.limit !== null && amount(each.used) > amount(each.limit)))
  );
}

function resources(queues: readonly Queue[]): string[] {
  return [...new Set(queues.flatMap((queue) => queue.accounts.map((account) => account.resource)))];
}

interface TreeProps {
  rows: readonly TreeRow[];
  resource: string;
  own: boolean;
  toggle: (path: string) => void;
}

function Tree({ rows, resource, own, toggle }: TreeProps) {
  const body = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState(0);
  const navigate = useNavigate();
  const whole = Math.max(...rows.map(({ queue }) => measure(account(queue, resource))));
  const go = (index: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    setActive(next);
    body.current?.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus();
  };
  const keys = (event: KeyboardEvent) => {
    const row = rows[active];
    if (!row || event.target !== body.current?.querySelector(`[data-index="${active}"]`)) return;
    const { queue, open, parts } = row;
    if (event.key === "ArrowDown" || event.key === "j") go(active + 1);
    else if (event.key === "ArrowUp" || event.key === "k") go(active - 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(rows.length - 1);
    else if (event.key === "ArrowRight") open || !parts ? go(active + 1) : toggle(queue.path);
    else if (event.key === "ArrowLeft")
      open && parts ? toggle(queue.path) : go(rows.findIndex((each) => each.queue.path === queue.parent));
    else if (event.key === "Enter") void navigate({ to: "/queues/$path", params: { path: queue.path } });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <>
      <div className="tree" role="treegrid" aria-label="Queues" ref={body} onKeyDown={keys}>
        <div className="tree-row tree-head" role="row">
          {["queue", "", "used / guaranteed", "limit", "borrowed", "lent", "pending", "oldest"].map((title, index) => (
            <span key={title || "bar"} role="columnheader" className={index > 1 ? "number" : undefined}>
              {title || short(resource)}
            </span>
          ))}
        </div>
        {rows.map((row, index) => (
          <div
            key={row.queue.path}
            data-index={index}
            role="row"
            className="tree-row"
            aria-level={row.level}
            aria-posinset={row.position}
            aria-setsize={row.siblings}
            {...(row.parts > 0 && { "aria-expanded": row.open })}
            tabIndex={index === active ? 0 : -1}
            onFocus={() => setActive(index)}
          >
            <Cells row={row} account={account(row.queue, resource)} scale={own ? undefined : whole} toggle={toggle} />
          </div>
        ))}
      </div>
      <BarLegend />
    </>
  );
}

interface CellsProps {
  row: TreeRow;
  account: Account | undefined;
  scale: number | undefined;
  toggle: (path: string) => void;
}

function Cells({ row: { queue, level, open, parts }, account, scale, toggle }: CellsProps) {
  const over = account && account.limit !== null ? amount(account.used) - amount(account.limit) : 0;
  return (
    <>
      <span role="rowheader" className="tree-name" style={{ paddingInlineStart: `${(level - 1) * 1.2}rem` }}>
        {parts > 0 ? (
          <button
            type="button"
            className="twist"
            tabIndex={-1}
            onClick={() => toggle(queue.path)}
            aria-label={`${open ? "Close" : "Open"} ${queue.path}`}
          >
            {open ? "▾" : "▸"}
          </button>
        ) : (
          <span className="twist" />
        )}
        <Link to="/queues/$path" params={{ path: queue.path }} title={queue.path} tabIndex={-1}>
          {queue.path.slice(queue.path.lastIndexOf(".") + 1)}
        </Link>{" "}
        {queue.effectiveState !== "open" && <Chip word={queue.effectiveState} />}
        {account?.starved && <Chip word="starved" />}
        {over > 0 && <Chip word="warning" label={`${grouped(over)} over limit`} />}
        {queue.misconfiguredWorkloads > 0 && (
          <Chip word="CHANGE" label={`${queue.misconfiguredWorkloads} can never start`} />
        )}
      </span>
      <span role="gridcell">{account && <QuotaBar account={account} {...(scale !== undefined && { scale })} />}</span>
      <span role="gridcell" className="number">
        {account ? `${account.used} / ${account.guaranteed}` : "–"}
      </span>
      <span role="gridcell" className="number">
        {account?.limit ?? "–"}
      </span>
      <span role="gridcell" className="number">
        {signed(account?.borrowed, "+")}
      </span>
      <span role="gridcell" className="number">
        {signed(account?.lent, "−")}
      </span>
      <span role="gridcell" className="number">
        {queue.pendingWorkloads > 0 ? `${account?.pending ?? "0"} (${grouped(queue.pendingWorkloads)})` : "–"}
      </span>
      <span role="gridcell" className="number">
        <Ago at={queue.oldestPending} />
      </span>
    </>
  );
}

function account(queue: Queue, resource: string): Account | undefined {
  return queue.accounts.find((each) => each.resource === resource && each.flavor === null);
}

function measure(of: Account | undefined): number {
  return of ? reach(amounts(of)) : 0;
}

function signed(value: string | undefined, sign: string): string {
  return value && value !== "0" ? `${sign}${value}` : "–";
}

/** The rows of the tree as a tree grid: walked with arrows, only those in sight drawn, however many queues there are. */

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, memo, useMemo, useRef, useState } from "react";
import * as queries from "../api/queries";
import type { Account } from "../api/schema";
import { usePreferences } from "../app/preferences";
import { Ago } from "../kit/Ago";
import { Chip } from "../kit/Chip";
import { Starved } from "../kit/Starved";
import type { Shown } from "../kit/past";
import { QuotaBar, amounts, reach } from "../kit/QuotaBar";
import { rowHeight } from "../kit/rem";
import { amount, grouped, short, told } from "../text/quantity";
import { origin } from "../text/origin";
import { type Tab, causeTab } from "./queue/tabs";
import type { TreeRow } from "./tree";

const TITLES = ["queue", "", "used / guaranteed", "limit", "borrowed", "lent", "pending", "oldest"];

interface TreeProps {
  rows: readonly TreeRow[];
  resource: string;
  own: boolean;
  toggle: (path: string) => void;
}

export function Tree({ rows, resource, own, toggle }: TreeProps) {
  const body = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState(0);
  const navigate = useNavigate();
  const cause = causeTab(useQuery(queries.me()).data);
  const scale = useMemo(() => (own ? undefined : scaleOf(rows, resource)), [own, rows, resource]);
  usePreferences(); // how high a row is depends on them
  const height = rowHeight();
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => body.current,
    estimateSize: () => height,
    overscan: 4,
    getItemKey: (index) => rows[index]!.queue.path,
  });
  const go = (index: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    setActive(next);
    virtual.scrollToIndex(next);
    const drawn = () => body.current?.querySelector<HTMLElement>(`[data-index="${next}"]`);
    const there = drawn(); // at once, or a key that follows soon would find the row before in focus
    if (there) there.focus();
    else requestAnimationFrame(() => drawn()?.focus());
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
    <div
      className="tree"
      role="treegrid"
      aria-label="Queues"
      aria-rowcount={rows.length + 1}
      ref={body}
      onKeyDown={keys}
    >
      <div className="tree-row tree-head" role="row" aria-rowindex={1}>
        {TITLES.map((title, index) => (
          <span key={title || "bar"} role="columnheader" className={index > 1 ? "number" : undefined}>
            {title || short(resource)}
          </span>
        ))}
      </div>
      <div role="rowgroup" className="tree-body" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map(({ index, key, start }) => {
          const row = rows[index]!;
          return (
            <div
              key={key}
              ref={virtual.measureElement}
              data-index={index}
              role="row"
              className="tree-row"
              style={{ transform: `translateY(${start}px)` }}
              aria-rowindex={index + 2}
              aria-level={row.level}
              aria-posinset={row.position}
              aria-setsize={row.siblings}
              {...(row.parts > 0 && { "aria-expanded": row.open })}
              tabIndex={index === active ? 0 : -1}
              onFocus={() => setActive(index)}
            >
              <Cells
                queue={row.queue}
                level={row.level}
                open={row.open}
                parts={row.parts}
                account={account(row.queue, resource)}
                scale={scale}
                cause={cause}
                toggle={toggle}
              />
            </div>
          );
        })}
      </div>
    </div>
  );
}

interface CellsProps extends Pick<TreeRow, "queue" | "level" | "open" | "parts"> {
  account: Account | undefined;
  scale: number | undefined;
  cause: Tab;
  toggle: (path: string) => void;
}

/** Drawn anew only where the queue has changed: each step of scrolling draws the tree, and links are dear. */
const Cells = memo(function ({ queue, level, open, parts, account, scale, cause, toggle }: CellsProps) {
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
        <Marks of={queue} account={account} cause={cause} />
      </span>
      <span role="gridcell">{account && <QuotaBar account={account} {...(scale !== undefined && { scale })} />}</span>
      <span role="gridcell" className="number">
        {account ? `${figure(account.used, account)} / ${figure(account.guaranteed, account)}` : "–"}
      </span>
      <span role="gridcell" className="number">
        {account && account.limit !== null ? figure(account.limit, account) : "–"}
      </span>
      <span role="gridcell" className="number">
        {account && signed("+", account.borrowed, account)}
      </span>
      <span role="gridcell" className="number">
        {account && signed("−", account.lent, account)}
      </span>
      <span role="gridcell" className="number">
        {queue.pendingWorkloads > 0
          ? `${account ? figure(account.pending, account) : 0} (${grouped(queue.pendingWorkloads)})`
          : "–"}
      </span>
      <span role="gridcell" className="number">
        <Ago at={queue.oldestPending} />
      </span>
    </>
  );
});

interface MarksProps {
  of: Shown;
  account: Account | undefined;
  cause: Tab;
}

/** What sets a queue apart; each leads to what it speaks of. */
function Marks({ of, account, cause }: MarksProps) {
  const now = new Date();
  const over = amount(account?.overLimit);
  const { path, effectiveState, unstartableWorkloads: never, starvedSince: since, closed } = of;
  const why = {
    to: "/queues/$path",
    params: { path },
    search: { tab: cause },
    tabIndex: -1,
    className: "mark",
  } as const;
  return (
    <>
      {effectiveState !== "open" && (
        <Link {...why} title={origin(closed, path, now)}>
          <Chip word={effectiveState} />
        </Link>
      )}
      {account?.starved && (
        <Link to="/fair-share" search={{ root: path }} tabIndex={-1} className="mark">
          <Starved since={since} />
        </Link>
      )}
      {over > 0 && (
        <Link {...why} title={origin(account?.cut ?? null, path, now)}>
          <Chip word="warning" label={`${grouped(over)} over limit`} />
        </Link>
      )}
      {account?.outside && account.outside !== "0" && (
        <Chip word="info" label={`${figure(account.outside, account)} by pods outside the queues`} />
      )}
      {never > 0 && (
        <Link to="/jobs" search={{ queue: path, unstartable: "true" }} tabIndex={-1} className="mark">
          <Chip word="CHANGE" label={`${grouped(never)} can never start`} />
        </Link>
      )}
    </>
  );
}

function account(queue: Shown, resource: string): Account | undefined {
  return queue.accounts.find((each) => each.resource === resource && each.flavor === null);
}

/** One scale for all: a queue's bar is never longer than that of the queue it is in, unless it holds more. */
function scaleOf(rows: readonly TreeRow[], resource: string): number {
  const accounts = rows.map(({ queue }) => account(queue, resource)).filter((of) => of !== undefined);
  return Math.max(0, ...accounts.map((of) => reach(amounts(of))));
}

function figure(value: string, { resource }: Account): string {
  return told(amount(value), resource);
}

function signed(sign: string, value: string, of: Account): string {
  return value !== "0" ? `${sign}${figure(value, of)}` : "–";
}

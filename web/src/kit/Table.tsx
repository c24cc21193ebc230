/**
 * A list of rows: only those in sight are drawn, and their order stands still while somebody points at them or has
 * the focus among them. Rows are walked with the arrow keys or j and k, opened with Enter, and marked with Space.
 */

import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type ReactNode, memo, useEffect, useRef, useState } from "react";
import { usePreferences } from "../app/preferences";
import { rowHeight } from "./rem";

export interface Column<Row> {
  id: string;
  title: string;
  cell: (row: Row) => ReactNode;
  /** A width of CSS grid, such as `8ch` or `minmax(12ch, 1fr)`. */
  width: string;
  number?: boolean;
}

/** Rows that are marked, by id. */
export interface Marks {
  ids: ReadonlySet<string>;
  set: (ids: ReadonlySet<string>) => void;
}

interface Props<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  id: (row: Row) => string;
  open?: (row: Row) => void;
  /** Called when the end comes into sight. */
  more?: (() => void) | undefined;
  /** Of all rows, where more are to come: unknown = -1. */
  count?: number;
  marks?: Marks;
}

const GAP_REM = 0.75;
const TICK = "1.5rem";

/** Of each address whose row was opened: where one was, for when one comes back. */
const left = new Map<string, string>();

/** Go to the rows of the screen, if it has any. */
export function focusRows(): boolean {
  const row = document.querySelector<HTMLElement>(
    "[role=grid] [data-index][tabindex='0'], [role=treegrid] [tabindex='0']",
  );
  row?.focus();
  return row !== null;
}

export function Table<Row>({ label, columns, rows, id, open, more, count, marks }: Props<Row>) {
  const frame = useRef<HTMLDivElement>(null);
  const [held, setHeld] = useState(false);
  const { shown, changed, apply } = useStill(rows, id, held);
  const [active, setActive] = useState(0);
  usePreferences(); // how high a row is depends on them
  const row = rowHeight();
  const virtual = useVirtualizer({
    count: shown.length,
    getScrollElement: () => frame.current,
    estimateSize: () => row,
    overscan: 4,
    getItemKey: (index) => id(shown[index] as Row),
  });
  useEffect(() => virtual.measure(), [virtual, row]);
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last >= shown.length - 20) more();
  }, [last, shown.length, more]);

  const go = (index: number) => {
    const next = Math.max(0, Math.min(shown.length - 1, index));
    setActive(next);
    virtual.scrollToIndex(next);
    requestAnimationFrame(() => frame.current?.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus());
  };
  // Back at rows that were left by opening one: at that one.
  useEffect(() => {
    const key = place(label);
    const index = shown.findIndex((row) => id(row) === left.get(key));
    if (index < 0) return;
    left.delete(key);
    go(index);
  }, [shown.length > 0]); // eslint-disable-line react-hooks/exhaustive-deps
  const enter =
    open &&
    ((row: Row) => {
      left.set(place(label), id(row));
      open(row);
    });
  const onRow = (event: KeyboardEvent) =>
    event.target === event.currentTarget.querySelector(`[data-index="${active}"]`) ? shown[active] : undefined;
  const keys = (event: KeyboardEvent) => {
    const row = onRow(event);
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 20, PageUp: -20 }[event.key];
    if (step) go(active + step);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(shown.length - 1);
    else if (event.key === "Enter" && enter && row !== undefined) enter(row);
    else if (event.key === "Escape" && marks?.ids.size) marks.set(new Set());
    else if (event.key === " " && marks && row !== undefined) marks.set(toggled(marks.ids, id(row)));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const widths = [...(marks ? [TICK] : []), ...columns.map((column) => column.width)];
  const layout = { gridTemplateColumns: widths.join(" "), minWidth: narrowest(widths) };
  const allMarked = shown.length > 0 && shown.every((row) => marks?.ids.has(id(row)));
  return (
    <div
      className="table"
      onMouseEnter={() => setHeld(true)}
      onMouseLeave={() => setHeld(false)}
      onFocus={() => setHeld(true)}
      onBlur={() => setHeld(false)}
    >
      {changed > 0 && (
        <button type="button" className="updates" onClick={apply}>
          {changed} {changed === 1 ? "update" : "updates"} – apply
        </button>
      )}
      <div ref={frame} className="table-frame" role="grid" aria-label={label} aria-rowcount={count ?? shown.length + 1}>
        <div className="table-row table-head" role="row" aria-rowindex={1} style={layout}>
          {marks && (
            <span role="columnheader">
              <Tick
                label="mark all that are loaded"
                checked={allMarked}
                toggle={() => marks.set(new Set(allMarked ? [] : shown.map(id)))}
              />
            </span>
          )}
          {columns.map((column) => (
            <span key={column.id} role="columnheader" className={column.number ? "number" : undefined}>
              {column.title}
            </span>
          ))}
        </div>
        <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: "relative" }} onKeyDown={keys}>
          {items.map((item) => {
            const row = shown[item.index] as Row;
            return (
              <div
                key={item.key}
                data-index={item.index}
                className="table-row"
                role="row"
                aria-rowindex={item.index + 2}
                tabIndex={item.index === active ? 0 : -1}
                onFocus={() => setActive(item.index)}
                onDoubleClick={() => enter?.(row)}
                onClickCapture={(event) =>
                  // Not what opens elsewhere: then one stays here.
                  !event.ctrlKey &&
                  !event.metaKey &&
                  (event.target as HTMLElement).closest("a") &&
                  left.set(place(label), id(row))
                }
                {...(marks && { "aria-selected": marks.ids.has(id(row)) })}
                style={{
                  ...layout,
                  transform: `translateY(${item.start}px)`,
                  position: "absolute",
                }}
              >
                {marks && (
                  <span role="gridcell">
                    <Tick
                      label="mark"
                      checked={marks.ids.has(id(row))}
                      toggle={() => marks.set(toggled(marks.ids, id(row)))}
                      inRow
                    />
                  </span>
                )}
                <Cells columns={columns} row={row} />
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

const place = (label: string) => `${window.location.pathname}${window.location.search} ${label}`;

/** The least width at which no column leaves the row; narrower frames scroll. */
function narrowest(widths: readonly string[]): string {
  const least = widths.map((width) => /^(?:minmax\()?([\d.]+(?:ch|rem))/.exec(width)?.[1] ?? "0rem");
  return `calc(${least.join(" + ")} + ${widths.length * GAP_REM}rem)`;
}

interface CellsProps<Row> {
  columns: readonly Column<Row>[];
  row: Row;
}

/** Drawn anew only where the row is another: each step of scrolling draws the list, and links are dear. */
const Cells = memo(function <Row>({ columns, row }: CellsProps<Row>) {
  return columns.map((column) => (
    <span key={column.id} role="gridcell" className={column.number ? "number" : undefined}>
      {column.cell(row)}
    </span>
  ));
}) as <Row>(props: CellsProps<Row>) => ReactNode;

interface TickProps {
  label: string;
  checked: boolean;
  toggle: () => void;
  /** Reached by the row's own keys. */
  inRow?: boolean;
}

function Tick({ label, checked, toggle, inRow = false }: TickProps) {
  return (
    <label className="tick">
      <input type="checkbox" aria-label={label} checked={checked} onChange={toggle} {...(inRow && { tabIndex: -1 })} />
    </label>
  );
}

function toggled(ids: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const changed = new Set(ids);
  if (!changed.delete(id)) changed.add(id);
  return changed;
}

/** Rows that keep their order while `held`; values within them go on changing. */
function useStill<Row>(rows: readonly Row[], id: (row: Row) => string, held: boolean) {
  const [order, setOrder] = useState<readonly string[] | null>(null);
  useEffect(() => setOrder(held ? rows.map(id) : null), [held]); // eslint-disable-line react-hooks/exhaustive-deps
  if (!held || !order) return { shown: rows, changed: 0, apply: () => undefined };
  const byId = new Map(rows.map((row) => [id(row), row]));
  const kept = order.map((key) => byId.get(key)).filter((row) => row !== undefined);
  const known = new Set(order);
  const fresh = rows.filter((row) => !known.has(id(row)));
  const appended = rows.slice(-fresh.length).every((row, index) => row === fresh[index]);
  // A further page is no update: it comes after all that is shown.
  const shown = appended ? [...kept, ...fresh] : kept;
  const changed = (appended ? 0 : fresh.length) + (order.length - kept.length);
  return { shown, changed, apply: () => setOrder(rows.map(id)) };
}

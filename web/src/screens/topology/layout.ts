/** Where each domain and host lies on the map, in CSS pixels. Boxes are alike, so that sizes can be compared. */

import type { Domain, HeldFor } from "../../api/schema";
import { amount } from "../../text/quantity";

export interface Host {
  name: string;
  /** Path of the domain that it is in, such as `z00/b003/r0017`; empty: in none. */
  inside: string;
  /** By pods, whosever they are. */
  used: number;
  /** Not used, and held for jobs that wait. */
  reserved: number;
  free: number;
  whole: number;
  /** Who it is held for. */
  heldFor: readonly HeldFor[];
  out: "" | "cordoned" | "not ready";
}

export interface Cell {
  host: Host;
  x: number;
  y: number;
}

export interface Box {
  /** Path of the domain; empty: hosts that are in none. */
  path: string;
  x: number;
  y: number;
  width: number;
  height: number;
  cells: Cell[];
}

export interface Layout {
  boxes: Box[];
  height: number;
}

export const CELL = { width: 36, height: 10 };
export const HEAD = 16;
const GAP = 3;
const PAD = 5;
const BETWEEN = 8;
const MOST_GROWTH = 1.5;

type Seen = Pick<
  Domain,
  "domain" | "parent" | "used" | "outside" | "reserved" | "free" | "allocatable" | "heldFor" | "cordoned" | "notReady"
>;

export function hosts(domains: readonly Seen[], resource: string): Host[] {
  return domains.map((domain) => ({
    name: domain.domain,
    inside: domain.parent ?? "",
    used: amount(domain.used[resource]) + amount(domain.outside[resource]),
    reserved: amount(domain.reserved[resource]),
    free: amount(domain.free[resource]),
    whole: amount(domain.allocatable[resource]),
    heldFor: domain.heldFor,
    out: domain.notReady > 0 ? "not ready" : domain.cordoned > 0 ? "cordoned" : "",
  }));
}

/** The first `depth` names of a path. */
export function within(path: string, depth: number): string {
  return path.split("/").slice(0, depth).join("/");
}

/** A box for each domain of the level that is the `depth`th from the widest, in rows of `width`. */
export function layout(all: readonly Host[], depth: number, width: number): Layout {
  const groups = new Map<string, Host[]>();
  for (const host of all) {
    const path = within(host.inside, depth);
    const group = groups.get(path);
    if (group) group.push(host);
    else groups.set(path, [host]);
  }
  const most = Math.max(1, ...[...groups.values()].map((group) => group.length));
  const across = Math.max(1, Math.min(Math.ceil(Math.sqrt(most / 2)), Math.floor(width / (CELL.width + GAP)) - 1));
  const size = {
    width: across * (CELL.width + GAP) - GAP + 2 * PAD,
    height: HEAD + Math.ceil(most / across) * (CELL.height + GAP) - GAP + PAD,
  };
  const perRow = Math.max(1, Math.floor((width + BETWEEN) / (size.width + BETWEEN)));
  const boxes = [...groups.keys()].sort(byName).map((path, index) => {
    const x = (index % perRow) * (size.width + BETWEEN);
    const y = Math.floor(index / perRow) * (size.height + BETWEEN);
    const cells = groups
      .get(path)!
      .sort((one, other) => byName(one.name, other.name))
      .map((host, at) => ({
        host,
        x: x + PAD + (at % across) * (CELL.width + GAP),
        y: y + HEAD + Math.floor(at / across) * (CELL.height + GAP),
      }));
    return { path, x, y, ...size, cells };
  });
  return { boxes, height: Math.ceil(boxes.length / perRow) * (size.height + BETWEEN) };
}

/** How many times as large it may be drawn: boxes in one row fill the width. */
export function growth({ boxes }: Layout, width: number): number {
  const last = boxes.at(-1);
  return last && last.y === 0 ? Math.max(1, Math.min(MOST_GROWTH, width / (last.x + last.width))) : 1;
}

/** The cell at a point, gaps included. */
export function cellAt({ boxes }: Layout, x: number, y: number): Cell | undefined {
  const box = boxes.find((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + each.height);
  return box?.cells.find(
    (cell) => x >= cell.x && x < cell.x + CELL.width + GAP && y >= cell.y && y < cell.y + CELL.height + GAP,
  );
}

/** The cell that is next to another in a direction: the nearest, across before along. */
export function next(cells: readonly Cell[], from: Cell, key: string): Cell {
  const ahead: Record<string, (cell: Cell) => boolean> = {
    ArrowRight: (cell) => cell.y === from.y && cell.x > from.x,
    ArrowLeft: (cell) => cell.y === from.y && cell.x < from.x,
    ArrowDown: (cell) => cell.y > from.y,
    ArrowUp: (cell) => cell.y < from.y,
  };
  const away = (cell: Cell) => Math.abs(cell.x - from.x) * 0.5 + Math.abs(cell.y - from.y);
  const there = cells.filter(ahead[key] ?? (() => false));
  return there.reduce((best, cell) => (away(cell) < away(best) ? cell : best), there[0] ?? from);
}

/** Numbers within names count as numbers: n9 before n10. */
const collator = new Intl.Collator("en", { numeric: true });
const byName = (one: string, other: string) => collator.compare(one, other);

/** Moments that the tree of queues can be looked at, and the tree as it was then. */

import type { PastTree, Queue } from "../api/schema";

/** What a row of the tree shows of a queue, now or in the past. */
export type Shown = Pick<
  Queue,
  | "path"
  | "parent"
  | "accounts"
  | "pendingWorkloads"
  | "unstartableWorkloads"
  | "effectiveState"
  | "oldestPending"
  | "starvedSince"
  | "closed"
>;

export interface Range {
  name: string;
  seconds: number;
  /** Seconds between moments. */
  step: number;
}

export const RANGES: readonly Range[] = [
  { name: "24 h", seconds: 86_400, step: 300 },
  { name: "30 d", seconds: 2_592_000, step: 3600 },
];

/** The range that a moment is seen in: the shortest that reaches back to it. */
export function rangeOf(at: string | undefined, now: Date): Range {
  const age = at ? (now.getTime() - Date.parse(at)) / 1000 : 0;
  return RANGES.find((range) => age <= range.seconds) ?? RANGES[RANGES.length - 1]!;
}

/** How many steps before now a moment is; 0: now. */
export function stepsBack(at: string | undefined, range: Range, now: Date): number {
  if (!at) return 0;
  const steps = Math.round((now.getTime() - Date.parse(at)) / 1000 / range.step);
  return Math.min(range.seconds / range.step, Math.max(1, steps));
}

/** The moment so many steps before now, without fractions of a minute; undefined: now. */
export function momentAt(back: number, range: Range, now: Date): string | undefined {
  if (back <= 0) return undefined;
  const minute = Math.floor((now.getTime() - back * range.step * 1000) / 60_000) * 60_000;
  return new Date(minute).toISOString().replace(".000Z", "Z");
}

/** Rows of the past look like those of now; what was not written down is left out, not guessed. */
export function asShown(tree: PastTree): Shown[] {
  return tree.items.map((item) => ({
    path: item.path,
    parent: item.path.includes(".") ? item.path.slice(0, item.path.lastIndexOf(".")) : null,
    accounts: item.accounts.map((account) => ({
      ...account,
      limit: account.limit ?? null,
      starved: false,
      overLimit: "0",
      cut: null,
    })),
    pendingWorkloads: item.pendingWorkloads,
    unstartableWorkloads: 0,
    effectiveState: "open",
    oldestPending: null,
    starvedSince: null,
    closed: null,
  }));
}

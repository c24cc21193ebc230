/** Rows of the tree of queues: parents before children, without what is closed or does not match. */

import type { Shown } from "../kit/past";

export interface TreeRow {
  queue: Shown;
  /** 1: the root. */
  level: number;
  open: boolean;
  /** How many queues are right below it. */
  parts: number;
  /** Its place among its siblings, from 1. */
  position: number;
  siblings: number;
}

interface Choice {
  closed: ReadonlySet<string>;
  find: string;
  keep?: ((queue: Shown) => boolean) | undefined;
}

/** `queues` come parents first, as the API tells them. A queue that matches is shown with all above it. */
export function rows(queues: readonly Shown[], { closed, find, keep }: Choice): TreeRow[] {
  const wanted = find || keep ? matching(queues, find.toLowerCase(), keep) : undefined;
  const below = new Map<string | null, Shown[]>();
  for (const queue of queues) {
    if (wanted && !wanted.has(queue.path)) continue;
    below.set(queue.parent, [...(below.get(queue.parent) ?? []), queue]);
  }
  const found: TreeRow[] = [];
  const walk = (parent: string | null, level: number) => {
    const children = below.get(parent) ?? [];
    children.forEach((queue, index) => {
      const parts = below.get(queue.path)?.length ?? 0;
      const open = parts > 0 && (wanted !== undefined || !closed.has(queue.path));
      found.push({ queue, level, open, parts, position: index + 1, siblings: children.length });
      if (open) walk(queue.path, level + 1);
    });
  };
  walk(null, 1);
  return found;
}

function matching(queues: readonly Shown[], find: string, keep?: (queue: Shown) => boolean): Set<string> {
  const wanted = new Set<string>();
  for (const queue of queues) {
    if (!queue.path.includes(find) || (keep && !keep(queue))) continue;
    const names = queue.path.split(".");
    names.forEach((_, index) => wanted.add(names.slice(0, index + 1).join(".")));
  }
  return wanted;
}

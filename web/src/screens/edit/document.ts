/** A QueueTree document as it is edited, and how two people's edits of it come together. */

export interface QuotaRow {
  flavor?: string;
  resource: string;
  guaranteed?: string | number;
  limit?: string | number;
  lend?: string | number;
}

export type Stated = { quota?: QuotaRow[] } & Record<string, unknown>;

export interface Document {
  apiVersion: string;
  kind: string;
  root: string;
  queues: Record<string, Stated>;
  flavors?: unknown;
  topology?: unknown;
}

const PARTS = ["flavors", "topology"] as const;

/** Key order does not count; the order of lists does. */
export function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, each]) => [key, sorted(each)]));
}

/** What of `mine` is not as in `base`: what is not named stays as it is on the server. */
export function changed(base: Document, mine: Document): Document {
  const queues = Object.entries(mine.queues).filter(([path, stated]) => !same(stated, base.queues[path]));
  const { apiVersion, kind, root } = mine;
  const parts = PARTS.filter((part) => mine[part] !== undefined && !same(mine[part], base[part]));
  return {
    apiVersion,
    kind,
    root,
    queues: Object.fromEntries(queues),
    ...Object.fromEntries(parts.map((part) => [part, mine[part]])),
  };
}

export function nothing(document: Document): boolean {
  return Object.keys(document.queues).length === 0 && PARTS.every((part) => document[part] === undefined);
}

/** Queues that were taken out of the text: to leave one out does not delete it. */
export function leftOut(base: Document, mine: Document): string[] {
  return Object.keys(base.queues).filter((path) => !(path in mine.queues));
}

export interface Clash {
  path: string;
  key: string;
  mine: unknown;
  theirs: unknown;
}

/**
 * My edits of `base` on what is there now. Where both changed the same key of a queue, theirs stays and the clash is told.
 */
export function merged(base: Document, mine: Document, theirs: Document): { document: Document; clashes: Clash[] } {
  const clashes: Clash[] = [];
  const queues: Record<string, Stated> = { ...theirs.queues };
  for (const [path, stated] of Object.entries(changed(base, mine).queues)) {
    const [was, is] = [base.queues[path] ?? {}, theirs.queues[path] ?? {}];
    const both: Stated = { ...is };
    for (const key of new Set([...Object.keys(stated), ...Object.keys(was)])) {
      if (same(stated[key], was[key])) continue;
      if (!same(is[key], was[key]) && !same(is[key], stated[key])) {
        clashes.push({ path, key, mine: stated[key], theirs: is[key] });
      } else if (stated[key] === undefined) delete both[key];
      else both[key] = stated[key];
    }
    queues[path] = both;
  }
  const document: Document = { ...theirs, queues };
  for (const part of PARTS) {
    if (same(mine[part], base[part])) continue;
    if (!same(theirs[part], base[part]) && !same(theirs[part], mine[part])) {
      clashes.push({ path: part, key: "", mine: mine[part], theirs: theirs[part] });
    } else document[part] = mine[part];
  }
  return { document, clashes };
}

/** The document with another amount in a quota row; empty: the row says nothing of it. */
export function withAmount(
  document: Document,
  path: string,
  index: number,
  field: "guaranteed" | "limit" | "lend",
  text: string,
): Document {
  const quota = (document.queues[path]?.quota ?? []).map((row, at) => {
    if (at !== index) return row;
    const { [field]: _, ...rest } = row;
    return text === "" ? rest : { ...rest, [field]: text };
  });
  return { ...document, queues: { ...document.queues, [path]: { ...document.queues[path], quota } } };
}

/** A QueueTree document as it is edited, and how two people's edits of it come together. */

export interface QuotaRow {
  flavor?: string;
  resource: string;
  guaranteed?: string | number;
  limit?: string | number;
  lend?: string | number;
}

export type Stated = { quota?: QuotaRow[] } & Record<string, unknown>;

export type Document = {
  apiVersion: string;
  kind: string;
  root: string;
  queues: Record<string, Stated>;
  flavors?: unknown;
  topology?: unknown;
};

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

type Amount = "guaranteed" | "limit" | "lend";
export const AMOUNTS: readonly Amount[] = ["guaranteed", "limit", "lend"];

/** What two people have set to different values. `at`: the amount, where it is one of a quota row. */
export interface Clash {
  path: string;
  key: string;
  at?: { index: number; field: Amount };
  was: unknown;
  mine: unknown;
  theirs: unknown;
}

/** The document with mine where we clash. */
export function withMine(document: Document, { path, key, at, mine }: Clash): Document {
  if (at) return withAmount(document, path, at.index, at.field, mine === undefined ? "" : String(mine));
  if (key === "") return { ...document, [path]: mine };
  return { ...document, queues: { ...document.queues, [path]: { ...document.queues[path], [key]: mine } } };
}

/**
 * My edits of `base` on what is there now. Where both changed the same key of a queue, or the same amount of its quota,
 * theirs stays and the clash is told.
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
        const rows = key === "quota" ? mergedRows(path, was.quota, stated.quota, is.quota) : undefined;
        if (rows) both.quota = rows.quota;
        clashes.push(...(rows?.clashes ?? [{ path, key, was: was[key], mine: stated[key], theirs: is[key] }]));
      } else if (stated[key] === undefined) delete both[key];
      else both[key] = stated[key];
    }
    queues[path] = both;
  }
  const document: Document = { ...theirs, queues };
  for (const part of PARTS) {
    if (same(mine[part], base[part])) continue;
    if (!same(theirs[part], base[part]) && !same(theirs[part], mine[part])) {
      clashes.push({ path: part, key: "", was: base[part], mine: mine[part], theirs: theirs[part] });
    } else document[part] = mine[part];
  }
  return { document, clashes };
}

/** Amount by amount, where all three have the same rows in the same order. */
function mergedRows(
  path: string,
  was: readonly QuotaRow[] = [],
  mine: readonly QuotaRow[] = [],
  theirs: readonly QuotaRow[] = [],
): { quota: QuotaRow[]; clashes: Clash[] } | undefined {
  const named = (rows: readonly QuotaRow[]) => rows.map((row) => [row.flavor ?? null, row.resource]);
  if (!same(named(was), named(mine)) || !same(named(was), named(theirs))) return undefined;
  const clashes: Clash[] = [];
  const quota = theirs.map((row, index) => {
    const made = { ...row };
    for (const field of AMOUNTS) {
      const [a, b, c] = [was[index]?.[field], mine[index]?.[field], row[field]];
      if (same(a, b) || same(b, c)) continue;
      if (!same(a, c)) clashes.push({ path, key: "quota", at: { index, field }, was: a, mine: b, theirs: c });
      else if (b === undefined) delete made[field];
      else made[field] = b;
    }
    return made;
  });
  return { quota, clashes };
}

/** The document with another amount in a quota row; empty: the row says nothing of it. */
export function withAmount(document: Document, path: string, index: number, field: Amount, text: string): Document {
  const quota = (document.queues[path]?.quota ?? []).map((row, at) => {
    if (at !== index) return row;
    const { [field]: _, ...rest } = row;
    return text === "" ? rest : { ...rest, [field]: text };
  });
  return { ...document, queues: { ...document.queues, [path]: { ...document.queues[path], quota } } };
}

/** What a problem's field is of, in words: `limit of root.a` for `/queues/root.a/quota/0/limit`. */
export function subject({ field, pointer }: { field: string; pointer?: string | null }): string {
  const steps = (pointer ?? "").split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  const [, kind, path = "", ...keys] = steps;
  if (kind !== "queues") return field;
  const words = keys.filter((key, index) => !/^\d+$/.test(key) && !(key === "quota" && keys[index + 1]));
  return words.length > 0 ? `${words.join(".")} of ${path}:` : path;
}

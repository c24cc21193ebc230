/**
 * What others have written, as it is shown: characters that no eye sees, or that turn its direction, become `�`. A moment
 * that a sentence tells in UTC is told in the reader's time, as all others on the page are.
 */

import { local } from "./time";

// Controls but for tab and line feed; marks, embeddings, overrides and isolates of direction.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** An answer with all text in it made so. */
export function inert<T>(value: T): T {
  return made(value) as T;
}

function made(value: unknown): unknown {
  if (typeof value === "string") return local(value.replace(UNSEEN, "\ufffd"));
  if (Array.isArray(value)) return value.map(made);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [made(name), made(each)]));
}

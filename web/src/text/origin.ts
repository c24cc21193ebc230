import type { Origin } from "../api/schema";
import { clock } from "./time";

/** Since when a queue is so, by whom and why: `since 15:11:02, by admin: maintenance`. Empty where it is not known. */
export function origin(of: Origin | null, queue: string, now: Date): string {
  if (!of) return "";
  const above = of.queue === queue ? "" : `, at ${of.queue}`;
  return `since ${clock(of.at, now)}, by ${of.by}${above}${of.reason && `: ${of.reason}`}`;
}

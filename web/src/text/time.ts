/** Spans of time as people say them, and moments in the reader's own zone or in UTC. */

const SIZES: readonly (readonly [number, string])[] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "m"],
];

/** `9 s`, `4 m`, `3 h`, `2 d`: one unit, rounded down. */
export function span(seconds: number): string {
  const most = Math.max(0, seconds);
  for (const [size, unit] of SIZES) {
    if (most >= size) return `${Math.floor(most / size)} ${unit}`;
  }
  return `${Math.floor(most)} s`;
}

/** Seconds from one moment to another. */
export function between(from: string | Date, to: Date): number {
  return (to.getTime() - new Date(from).getTime()) / 1000;
}

/** `24 Nov, 18:43:07`, today without the day. */
export function clock(at: string | Date, now: Date): string {
  const moment = new Date(at);
  const time = moment.toLocaleTimeString([], { hour12: false });
  if (moment.toDateString() === now.toDateString()) return time;
  return `${moment.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
}

const UTC = /\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC\b/g;

/**
 * A sentence whose moments, such as `2026-11-24 18:43:07 UTC`, are in the reader's own zone. A quoted text may name a day
 * that no calendar has: it stays as it is.
 */
export function local(text: string, now = new Date()): string {
  return text.replace(UTC, (said: string, day: string, time: string) => {
    const at = new Date(`${day}T${time}Z`);
    return Number.isNaN(at.getTime()) || exact(at) !== said ? said : clock(at, now);
  });
}

/** For titles: the moment in full, with its zone. */
export function exact(at: string | Date): string {
  return new Date(at)
    .toISOString()
    .replace("T", " ")
    .replace(/\.\d+Z$/, " UTC");
}

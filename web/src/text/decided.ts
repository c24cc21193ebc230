import type { Overview } from "../api/schema";

/** When the newest decision was made, whether or not it changed anything and was written. Null: never yet. */
export function decided(of: Pick<Overview, "asOf" | "controller">): string | null {
  const age = of.controller.cycleAgeSeconds;
  return age === null ? null : new Date(Date.parse(of.asOf) - age * 1000).toISOString();
}

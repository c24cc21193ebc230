import type { Controller } from "../api/schema";

/**
 * When the newest decision was made, whether or not it changed anything and was written. Null: never yet.
 * `read`: when the controller was asked, in milliseconds.
 */
export function decided({ cycleAgeSeconds: age }: Pick<Controller, "cycleAgeSeconds">, read: number): string | null {
  return age === null ? null : new Date(read - age * 1000).toISOString();
}

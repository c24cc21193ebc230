/** What a reader has set for this browser: looks, density, single-key shortcuts. */

import { useSyncExternalStore } from "react";

export interface Preferences {
  theme: "system" | "light" | "dark";
  density: "compact" | "comfortable";
  /** Single-key shortcuts can be in the way of speech input (WCAG 2.1.4). */
  keys: boolean;
}

const KEY = "queuer";
const DEFAULTS: Preferences = { theme: "system", density: "compact", keys: true };
const listeners = new Set<() => void>();
let current = read();

function read(): Preferences {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Preferences>) };
  } catch {
    return DEFAULTS;
  }
}

function show() {
  document.documentElement.dataset["theme"] = current.theme;
  document.documentElement.dataset["density"] = current.density;
}

export function setPreferences(change: Partial<Preferences>): void {
  current = { ...current, ...change };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // A browser that keeps nothing still shows what was chosen.
  }
  show();
  for (const listener of listeners) listener();
}

export function usePreferences(): Preferences {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}

show();

/** What a reader has set for this browser: looks, density, single-key shortcuts, named views. */

import { useSyncExternalStore } from "react";

/** What the address of a list says: the parameters and their values. */
export type View = Readonly<Record<string, string>>;

export interface Preferences {
  theme: "system" | "light" | "dark";
  density: "compact" | "comfortable";
  /** Single-key shortcuts can be in the way of speech input (WCAG 2.1.4). */
  keys: boolean;
  /** Of the list of jobs, by name. */
  views: Readonly<Record<string, View>>;
}

const KEY = "queuer";
const DEFAULTS: Preferences = { theme: "system", density: "compact", keys: true, views: {} };
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

/** The time that ages on the page are counted from: one tick a second for all of them, none while paused. */

import { useSyncExternalStore } from "react";

let now = new Date();
let paused = false;
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function tick() {
  now = new Date();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    if (!paused && document.visibilityState !== "hidden") tick();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

export function useNow(): Date {
  return useSyncExternalStore(subscribe, () => now);
}

export function pauseClock(pause: boolean): void {
  paused = pause;
  if (!pause) tick();
}

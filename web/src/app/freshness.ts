/**
 * Keeps answers fresh: what the stream says has changed is asked for anew, at most so often, and never while paused.
 */

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useSyncExternalStore } from "react";
import { type Link, type Topic, follow } from "../api/live";
import { between } from "../text/time";
import { pauseClock, useNow } from "./now";

/** Milliseconds between two readings of one topic. */
const AGAIN: Record<Topic, number> = { overview: 5000, queues: 3000, workloads: 2000, cycle: 2000 };

export interface Freshness {
  link: Link;
  /** Whether the server knew who asks, the last time that anything was asked. */
  loggedIn: boolean;
  /** Since when it is so. */
  since: Date;
  paused: boolean;
  /** Topics that have changed while paused. */
  missed: number;
}

class Follower {
  state: Freshness = { link: "connecting", loggedIn: true, since: new Date(), paused: false, missed: 0 };
  private readonly listeners = new Set<() => void>();
  private readonly due = new Map<Topic, ReturnType<typeof setTimeout>>();
  private readonly read = new Map<Topic, number>();
  private readonly missed = new Set<Topic>();
  private queries: QueryClient | undefined;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  begin(queries: QueryClient): () => void {
    this.queries = queries;
    const stop = follow({
      changed: (topics) => topics.forEach((topic) => this.changed(topic)),
      link: (link) => this.link(link),
    });
    return () => {
      stop();
      this.due.forEach(clearTimeout);
      this.due.clear();
    };
  }

  pause(paused: boolean): void {
    pauseClock(paused);
    const missed = [...this.missed];
    this.missed.clear();
    this.set({ paused, missed: 0 });
    if (!paused) missed.forEach((topic) => this.changed(topic));
  }

  login(loggedIn: boolean): void {
    if (loggedIn === this.state.loggedIn) return;
    this.set({ loggedIn });
    if (loggedIn) void this.queries?.invalidateQueries();
  }

  private link(link: Link): void {
    if (link === this.state.link) return;
    const back = link === "live" && this.state.link !== "connecting";
    this.set({ link, since: new Date() });
    // Whatever failed while the server was away is asked for again.
    if (back) void this.queries?.invalidateQueries();
  }

  private changed(topic: Topic): void {
    if (this.state.paused) {
      this.missed.add(topic);
      this.set({ missed: this.missed.size });
      return;
    }
    if (this.due.has(topic)) return;
    const soon = Math.max(0, (this.read.get(topic) ?? 0) + AGAIN[topic] - Date.now());
    this.due.set(
      topic,
      setTimeout(() => {
        this.due.delete(topic);
        this.read.set(topic, Date.now());
        void this.queries?.invalidateQueries({ queryKey: [topic] });
      }, soon),
    );
  }

  private set(change: Partial<Freshness>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }
}

const follower = new Follower();

export function useFreshness(): Freshness {
  return useSyncExternalStore(follower.subscribe, () => follower.state);
}

/** Seconds without the stream after which what is shown may be old. */
const LOST_SECONDS = 5;

/** For how many seconds nothing has been heard of the server; undefined while it is only a moment, or none. */
export function useLost(): number | undefined {
  const { link, since } = useFreshness();
  const lost = between(since, useNow());
  return link === "lost" && lost > LOST_SECONDS ? lost : undefined;
}

export function setPaused(paused: boolean): void {
  follower.pause(paused);
}

export function setLoggedIn(loggedIn: boolean): void {
  follower.login(loggedIn);
}

/** Begin to follow the stream, while the component that calls this is shown. */
export function useFollowing(): void {
  const queries = useQueryClient();
  useEffect(() => follower.begin(queries), [queries]);
}

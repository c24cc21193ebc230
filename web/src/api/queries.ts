/**
 * Every question the screens ask. The first part of a key is the topic of the stream that makes the answer old:
 * `queues`, `overview`, `workloads`, `cycle`. What is under `settled` no stream speaks of: it is asked for anew when it is
 * shown again, and after what is done here.
 */

import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "./client";
import type { By } from "./schema";

export interface JobFilter {
  queue?: string;
  namespace?: string;
  name?: string;
  user?: string;
  state?: string;
  reason?: string;
  verdict?: string;
  deleted?: boolean;
}

export const overview = () =>
  queryOptions({
    queryKey: ["overview"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/overview", { signal })),
  });

export const queues = () =>
  queryOptions({
    queryKey: ["queues"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/queues", { signal })),
  });

export const queue = (path: string) =>
  queryOptions({
    queryKey: ["queues", path],
    queryFn: ({ signal }) => body(api.GET("/api/v1/queues/{path}", { params: { path: { path } }, signal })),
  });

/** All queues at a past moment, which does not change any more. */
export const pastQueues = (at: string) =>
  queryOptions({
    queryKey: ["settled", "queues", at],
    queryFn: ({ signal }) => body(api.GET("/api/v1/queue-history", { params: { query: { at } }, signal })),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });

export const headroom = (path: string, shape?: string) =>
  queryOptions({
    queryKey: ["cycle", "headroom", path, shape],
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/queues/{path}/headroom", {
          params: { path: { path }, query: shape ? { shape } : {} },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });

export const pending = (path: string) =>
  infiniteQueryOptions({
    queryKey: ["cycle", "pending", path],
    queryFn: ({ signal, pageParam }) =>
      body(
        api.GET("/api/v1/queues/{path}/pending", {
          params: { path: { path }, query: { limit: 100, ...(pageParam && { cursor: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
  });

export const history = (path: string, since: string, step: string) =>
  queryOptions({
    queryKey: ["settled", "history", path, since, step],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/queues/{path}/history", { params: { path: { path }, query: { since, step } }, signal })),
    placeholderData: keepPreviousData,
  });

export const fairShare = (root: string) =>
  queryOptions({
    queryKey: ["cycle", "fair-share", root],
    queryFn: ({ signal }) => body(api.GET("/api/v1/fair-share", { params: { query: { root } }, signal })),
  });

/** What is typed of a name is meant as a part of it, unless it says otherwise with a `*` of its own. */
const part = (text: string | undefined) => (!text || text.includes("*") ? text : `*${text}*`);

/** The filter as the API takes it. */
export function wanted({ name, user, ...filter }: JobFilter): JobFilter {
  return { ...filter, ...(name && { name: part(name) }), ...(user && { user: part(user) }) } as JobFilter;
}

export const jobs = (filter: JobFilter) =>
  infiniteQueryOptions({
    queryKey: ["workloads", "list", filter],
    queryFn: ({ signal, pageParam }) =>
      body(
        api.GET("/api/v1/workloads", {
          params: { query: { limit: 200, ...wanted(filter), ...(pageParam && { cursor: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
    placeholderData: keepPreviousData,
  });

export const jobGroups = (filter: JobFilter, by: By) =>
  queryOptions({
    queryKey: ["workloads", "groups", filter, by],
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/workloads", {
          params: { query: { limit: 200, ...wanted(filter), groupBy: by } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });

export const job = (uid: string) =>
  queryOptions({
    queryKey: ["workloads", uid],
    queryFn: ({ signal }) => body(api.GET("/api/v1/workloads/{uid}", { params: { path: { uid } }, signal })),
  });

export const timeline = (uid: string) =>
  queryOptions({
    queryKey: ["workloads", uid, "timeline"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/workloads/{uid}/timeline", { params: { path: { uid } }, signal })),
  });

export const jobEvents = (uid: string) =>
  queryOptions({
    queryKey: ["workloads", uid, "events"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/events", { params: { query: { uid, limit: 200 } }, signal })),
  });

export const audit = (target?: string) =>
  queryOptions({
    queryKey: ["settled", "audit", target],
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/audit", {
          params: { query: { limit: 100, ...(target && { target }) } },
          signal,
        }),
      ),
  });

export const me = () =>
  queryOptions({
    queryKey: ["settled", "me"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/me", { signal })),
    staleTime: 60_000,
  });

export const meta = () =>
  queryOptions({
    queryKey: ["settled", "meta"],
    queryFn: ({ signal }) => body(api.GET("/api/v1/meta", { signal })),
    staleTime: Infinity,
  });

export const cycles = () =>
  infiniteQueryOptions({
    queryKey: ["cycle", "list"],
    queryFn: ({ signal, pageParam }) =>
      body(
        api.GET("/api/v1/cycles", {
          params: { query: { limit: 200, ...(pageParam && { cursor: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
  });

export const cycle = (id: number) =>
  queryOptions({
    queryKey: ["settled", "cycle", id],
    queryFn: ({ signal }) => body(api.GET("/api/v1/cycles/{id}", { params: { path: { id } }, signal })),
  });

/** As many as one answer may have. */
const MOST_DOMAINS = 5000;

export const topology = (level: string | undefined, resource: string | undefined) =>
  queryOptions({
    queryKey: ["cycle", "topology", level, resource],
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/topology", {
          params: { query: { limit: MOST_DOMAINS, ...(level && { level }), ...(resource && { resource }) } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });

export const slots = (shape: string) =>
  queryOptions({
    queryKey: ["cycle", "slots", shape],
    queryFn: ({ signal }) => body(api.GET("/api/v1/topology/slots", { params: { query: { shape } }, signal })),
    placeholderData: keepPreviousData,
  });

/** The same for one level, with the names of the domains that have room. */
export const places = (shape: string, level: string) =>
  queryOptions({
    queryKey: ["cycle", "slots", shape, level],
    queryFn: ({ signal }) => body(api.GET("/api/v1/topology/slots", { params: { query: { shape, level } }, signal })),
    placeholderData: keepPreviousData,
  });

export interface EventFilter {
  type?: string;
  queue?: string;
  uid?: string;
}

export const events = (filter: EventFilter) =>
  infiniteQueryOptions({
    queryKey: ["workloads", "events", filter],
    queryFn: ({ signal, pageParam }) =>
      body(
        api.GET("/api/v1/events", {
          params: { query: { limit: 200, ...filter, ...(pageParam && { before: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: (page) => page.next,
  });

export const auditOf = (filter: { target?: string; actor?: string }) =>
  queryOptions({
    queryKey: ["settled", "audit", filter],
    queryFn: ({ signal }) => body(api.GET("/api/v1/audit", { params: { query: { limit: 200, ...filter } }, signal })),
  });

export const queueTree = (root: string) =>
  queryOptions({
    queryKey: ["settled", "tree", root],
    queryFn: ({ signal }) => body<unknown>(api.GET("/api/v1/queue-tree", { params: { query: { root } }, signal })),
    staleTime: Infinity,
  });

export const changeset = (id: string) =>
  queryOptions({
    queryKey: ["settled", "changeset", id],
    queryFn: ({ signal }) => body(api.GET("/api/v1/changesets/{id}", { params: { path: { id } }, signal })),
  });

/** What the reader may do to jobs, by what `/me` says of it, and what it lacks for the rest. */

import type { Me } from "./schema";

interface Job {
  namespace: string;
  queue: string;
}

export type Verb = "hold" | "release" | "prioritise" | "evict";

const administers = (me: Me | undefined, queue: string) =>
  me?.administers.some((above) => `${queue}.`.startsWith(`${above}.`)) ?? false;

export const may = (me: Me | undefined, verb: Verb, job: Job) =>
  administers(me, job.queue) || (verb !== "evict" && (me?.updates.includes(job.namespace) ?? false));

/** The right that is missing, as an admin grants it. */
export const lacking = (verb: Verb, { namespace, queue }: Job) =>
  verb === "evict"
    ? `needs the right to update queues.queuer.dev ${queue}`
    : `needs the right to update workloads.queuer.dev in namespace ${namespace}, or queues.queuer.dev ${queue}`;

/** Asks the controller for something about one job or many, with a reason, and says what became of each. */

import { useState } from "react";
import { api, body } from "../../api/client";
import type { Verb } from "../../api/rights";
import type { Workload, components } from "../../api/schema";
import { useNow } from "../../app/now";
import { Deed } from "../../kit/Deed";
import { demand } from "../../text/quantity";
import { between, span } from "../../text/time";

type Item = components["schemas"]["Item"];
type Items = components["schemas"]["Items"];

export type Meant = Pick<Workload, "uid" | "namespace" | "name" | "landed" | "demand">;

/** Seconds that an answer is waited for; what takes longer is kept until the controller takes it up. */
const WAIT = "5s";
export const WORDS: Record<Verb, { title: string; means: string }> = {
  hold: { title: "Hold", means: "It will not start until it is released. What runs goes on running." },
  release: { title: "Release", means: "It may start again as soon as there is room." },
  prioritise: {
    title: "Set priority",
    means: "Among the jobs of its queue, the higher number goes first. Empty: as the job says itself.",
  },
  evict: {
    title: "Evict",
    means:
      "All its pods are stopped, and what they have not saved is lost. Their place goes to whoever is first in line. It " +
      "keeps its submit time, goes back to its queue, and may start again after a minute.",
  },
};

export function Ask({ jobs, verb, close }: { jobs: readonly Meant[]; verb: Verb; close: () => void }) {
  const [priority, setPriority] = useState("");
  const [first] = jobs;
  return (
    <Deed
      verb={WORDS[verb].title}
      to={jobs.length === 1 && first ? `${first.namespace}/${first.name}` : `${jobs.length} jobs`}
      means={
        <>
          {jobs.length > 1 && "Of each: "}
          {WORDS[verb].means} {verb === "evict" && <Loss of={jobs} />}
        </>
      }
      fields={
        verb === "prioritise" && (
          <label className="field">
            Priority, a number or a PriorityClass
            <input value={priority} onChange={(event) => setPriority(event.target.value)} size={24} />
          </label>
        )
      }
      busy="waiting for the controller"
      act={({ reason, key }) =>
        body(
          api.POST(`/api/v1/workloads:${verb}`, {
            params: { query: { wait: WAIT }, header: { "idempotency-key": key } },
            body: {
              uids: jobs.map((job) => job.uid),
              reason,
              ...(verb === "prioritise" && { priority: said(priority) }),
            },
          }),
        )
      }
      done={(answer) => <Outcomes of={answer} jobs={jobs} />}
      close={close}
    />
  );
}

/** How much work may be lost: for how long it has run, on what. */
function Loss({ of: jobs }: { of: readonly Meant[] }) {
  const now = useNow();
  const landed = jobs.flatMap((job) => job.landed ?? []).sort();
  if (landed[0] === undefined) return null;
  const longest = span(between(landed[0], now));
  const [only] = jobs;
  if (jobs.length > 1 || !only) return <>The one that has run longest has run for {longest}.</>;
  return (
    <>
      It has run for {longest} on {demand(only.demand)}.
    </>
  );
}

function Outcomes({ of, jobs }: { of: Items; jobs: readonly Meant[] }) {
  const names = new Map(jobs.map((job) => [job.uid, `${job.namespace}/${job.name}`]));
  const done = of.items.filter((item) => item.command?.outcome === "done").length;
  return (
    <>
      {of.items.length > 1 && (
        <p>
          {done} of {of.items.length} done.
        </p>
      )}
      <ul className="list scroll" tabIndex={of.items.length > 1 ? 0 : -1}>
        {of.items.map((item) => (
          <li key={item.uid}>
            {of.items.length > 1 && `${names.get(item.uid) ?? item.uid}: `}
            <Outcome of={item} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Outcome({ of: { command, refused } }: { of: Item }) {
  if (refused) {
    return (
      <>
        <b>refused</b>: {refused.detail}
      </>
    );
  }
  if (!command?.outcome) return "the controller has not taken it up yet; it is kept until it does";
  return (
    <>
      <b>{command.outcome}</b>
      {command.message && `: ${command.message}`}
    </>
  );
}

/** A number where it is one, the name of a class, or null for the job's own. */
function said(priority: string): number | string | null {
  const text = priority.trim();
  if (text === "") return null;
  return /^-?\d+$/.test(text) ? Number(text) : text;
}

/** Asks the controller for something about one job or many, with a reason, and says what became of each. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, body } from "../../api/client";
import { newKey } from "../../api/key";
import type { Verb } from "../../api/rights";
import type { components } from "../../api/schema";
import { Dialog } from "../../kit/Dialog";
import { Trouble } from "../../kit/Panel";

type Item = components["schemas"]["Item"];
type Items = components["schemas"]["Items"];

export interface Meant {
  uid: string;
  namespace: string;
  name: string;
}

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
      "All its pods are stopped, and what they have not saved is lost. It goes back to its queue with its first submit " +
      "time, and may start again as soon as there is room.",
  },
};

export function Ask({ jobs, verb, close }: { jobs: readonly Meant[]; verb: Verb; close: () => void }) {
  const [reason, setReason] = useState("");
  const [priority, setPriority] = useState("");
  const queries = useQueryClient();
  const key = useRef(newKey());
  const act = useMutation({
    mutationFn: () =>
      body(
        api.POST(`/api/v1/workloads:${verb}`, {
          params: { query: { wait: WAIT }, header: { "idempotency-key": key.current } },
          body: {
            uids: jobs.map((job) => job.uid),
            reason,
            ...(verb === "prioritise" && { priority: said(priority) }),
          },
        }),
      ),
    onSettled: () => void queries.invalidateQueries({ queryKey: ["workloads"] }),
  });
  const [first] = jobs;
  const whom = jobs.length === 1 && first ? `${first.namespace}/${first.name}` : `${jobs.length} jobs`;
  return (
    <Dialog title={`${WORDS[verb].title}: ${whom}?`} close={close}>
      {(end) => (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            act.mutate();
          }}
        >
          <p>
            {jobs.length > 1 && "Of each: "}
            {WORDS[verb].means}
          </p>
          {verb === "prioritise" && !act.data && (
            <p>
              <label>
                Priority, a number or a PriorityClass
                <br />
                <input value={priority} onChange={(event) => setPriority(event.target.value)} size={24} />
              </label>
            </p>
          )}
          {!act.data && (
            <p>
              <label>
                Reason, for the audit
                <br />
                <input value={reason} onChange={(event) => setReason(event.target.value)} size={48} />
              </label>
            </p>
          )}
          {act.error && <Trouble error={act.error} />}
          <div role="status">{act.data && <Outcomes of={act.data} jobs={jobs} />}</div>
          <p className="row">
            {!act.data && (
              <button type="submit" className="main" disabled={act.isPending}>
                {act.isPending ? "waiting for the controller" : WORDS[verb].title}
              </button>
            )}
            {act.data ? (
              <button key="close" type="button" className="main" autoFocus onClick={end}>
                Close
              </button>
            ) : (
              <button type="button" onClick={end}>
                Cancel
              </button>
            )}
          </p>
        </form>
      )}
    </Dialog>
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

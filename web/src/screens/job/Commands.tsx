/** What can be done to a job: asked with a reason, carried out by the controller, and answered here. */

import { newKey } from "../../api/key";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, body } from "../../api/client";
import type { Command, WorkloadDetail } from "../../api/schema";
import { Trouble } from "../../kit/Panel";

type Verb = "hold" | "release" | "evict";
const WAIT = "5s";
const WORDS: Record<Verb, { title: string; means: string }> = {
  hold: { title: "Hold", means: "It will not start until it is released. What runs goes on running." },
  release: { title: "Release", means: "It may start again as soon as there is room." },
  evict: {
    title: "Evict",
    means: "All its pods are stopped, and it goes back to its queue with its first submit time.",
  },
};

export function Commands({ job }: { job: WorkloadDetail }) {
  const [verb, setVerb] = useState<Verb>();
  if (job.deleted || job.finished) return null;
  const held = job.state === "Held" || job.override?.hold === true;
  const runs = job.state === "Running" || job.state === "Placing" || job.state === "Admitted";
  const verbs: Verb[] = [held ? "release" : "hold", ...(runs ? (["evict"] as const) : [])];
  return (
    <>
      {verbs.map((each) => (
        <button key={each} type="button" onClick={() => setVerb(each)}>
          {WORDS[each].title}
        </button>
      ))}
      {verb && <Ask key={verb} job={job} verb={verb} close={() => setVerb(undefined)} />}
    </>
  );
}

function Ask({ job, verb, close }: { job: WorkloadDetail; verb: Verb; close: () => void }) {
  const [reason, setReason] = useState("");
  const queries = useQueryClient();
  const key = useRef(newKey());
  const act = useMutation({
    mutationFn: () => send(verb, job.uid, reason, key.current),
    onSettled: () => void queries.invalidateQueries({ queryKey: ["workloads"] }),
  });
  const show = (dialog: HTMLDialogElement | null) => {
    if (dialog && !dialog.open) dialog.showModal();
  };
  return (
    <dialog ref={show} onClose={close} aria-labelledby="command-title">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          act.mutate();
        }}
      >
        <h2 id="command-title">
          {WORDS[verb].title} {job.namespace}/{job.name}?
        </h2>
        <p>{WORDS[verb].means}</p>
        <p>
          <label>
            Reason, for the audit
            <br />
            <input value={reason} onChange={(event) => setReason(event.target.value)} size={48} autoFocus />
          </label>
        </p>
        {act.error && <Trouble error={act.error} />}
        {act.data && <Said command={act.data} />}
        <p className="row">
          {!act.data && (
            <button type="submit" className="main" disabled={act.isPending}>
              {act.isPending ? "waiting for the controller" : WORDS[verb].title}
            </button>
          )}
          <button type="button" onClick={close}>
            {act.data ? "Close" : "Cancel"}
          </button>
        </p>
      </form>
    </dialog>
  );
}

function Said({ command }: { command: Command }) {
  if (command.outcome === null) return <p>The controller has not taken it up yet; it is kept until it does.</p>;
  return (
    <p role="status">
      <b>{command.outcome}</b>
      {command.message && `: ${command.message}`}
    </p>
  );
}

function send(verb: Verb, uid: string, reason: string, key: string): Promise<Command> {
  const options = {
    params: { path: { uid }, query: { wait: WAIT }, header: { "idempotency-key": key } },
    body: { reason },
  };
  const calls = {
    hold: () => api.POST("/api/v1/workloads/{uid}:hold", options as never),
    release: () => api.POST("/api/v1/workloads/{uid}:release", options as never),
    evict: () => api.POST("/api/v1/workloads/{uid}:evict", options as never),
  };
  return body(calls[verb]() as Promise<{ data?: Command; error?: unknown; response: Response }>);
}

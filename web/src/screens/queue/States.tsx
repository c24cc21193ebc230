/** Hold, drain and open a queue: said with a reason, and with what it means for those who wait. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, body } from "../../api/client";
import { newKey } from "../../api/key";
import type { QueueDetail } from "../../api/schema";
import { Dialog } from "../../kit/Dialog";
import { Trouble } from "../../kit/Panel";

type Verb = "hold" | "drain" | "resume";

const WORDS: Record<Verb, { title: string; means: string; done: string }> = {
  hold: {
    title: "Hold",
    means: "Nothing new starts in it and below. What runs goes on, what comes is queued.",
    done: "It is held.",
  },
  drain: {
    title: "Drain",
    means: "Nothing new starts in it and below, and it takes no new jobs. What runs goes on.",
    done: "It drains.",
  },
  resume: { title: "Resume", means: "It starts and takes jobs again.", done: "It is open." },
};

export function States({ queue }: { queue: QueueDetail }) {
  const [verb, setVerb] = useState<Verb>();
  const verbs: Verb[] =
    queue.state === "open" ? ["hold", "drain"] : queue.state === "held" ? ["resume", "drain"] : ["resume", "hold"];
  return (
    <>
      {verbs.map((each, index) => (
        <button
          key={index}
          type="button"
          disabled={!queue.may.includes(each)}
          title={queue.may.includes(each) ? undefined : `needs the right to update queues.queuer.dev ${queue.path}`}
          onClick={() => setVerb(each)}
        >
          {WORDS[each].title}
        </button>
      ))}
      {verb && <Ask key={verb} path={queue.path} verb={verb} close={() => setVerb(undefined)} />}
    </>
  );
}

function Ask({ path, verb, close }: { path: string; verb: Verb; close: () => void }) {
  const [reason, setReason] = useState("");
  const key = useRef(newKey());
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () =>
      body(
        api.POST(`/api/v1/queues/{path}:${verb}`, {
          params: { path: { path }, header: { "idempotency-key": key.current } },
          body: { reason },
        }),
      ),
    onSuccess: () => void client.invalidateQueries(),
  });
  const starts = act.data?.impact?.starts.count ?? 0;
  return (
    <Dialog title={`${WORDS[verb].title} ${path}?`} close={close}>
      {(end) => (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            act.mutate();
          }}
        >
          <p>{WORDS[verb].means}</p>
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
          <p role="status">
            {act.data &&
              `${WORDS[verb].done} ${starts > 0 ? `${starts} waiting ${starts === 1 ? "job" : "jobs"} would start now.` : ""}`}
          </p>
          <p className="row">
            {!act.data && (
              <button type="submit" className="main" disabled={act.isPending}>
                {WORDS[verb].title}
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

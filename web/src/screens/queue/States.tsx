/** Hold, drain and open a queue: said with a reason, and with what it means for those who wait. */

import { useState } from "react";
import { api, body } from "../../api/client";
import type { Changeset, QueueDetail } from "../../api/schema";
import { Deed } from "../../kit/Deed";

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
      {verb && (
        <Deed
          key={verb}
          verb={WORDS[verb].title}
          to={queue.path}
          means={WORDS[verb].means}
          act={({ reason, key }) =>
            body(
              api.POST(`/api/v1/queues/{path}:${verb}`, {
                params: { path: { path: queue.path }, header: { "idempotency-key": key } },
                body: { reason },
              }),
            )
          }
          done={(changed) => `${WORDS[verb].done} ${starts(changed)}`}
          close={() => setVerb(undefined)}
        />
      )}
    </>
  );
}

function starts({ impact }: Changeset): string {
  const count = impact?.starts.count ?? 0;
  return count > 0 ? `${count} waiting ${count === 1 ? "job" : "jobs"} would start now.` : "";
}

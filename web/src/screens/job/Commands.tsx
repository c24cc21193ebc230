/** What can be done to one job. */

import { useState } from "react";
import { lacking, type Verb } from "../../api/rights";
import type { WorkloadDetail } from "../../api/schema";
import { Ask, WORDS } from "./Ask";

export function Commands({ job }: { job: WorkloadDetail }) {
  const [verb, setVerb] = useState<Verb>();
  if (job.deleted || job.finished) return null;
  const held = job.state === "Held" || job.override?.hold?.value === true;
  const runs = job.state === "Running" || job.state === "Placing" || job.state === "Admitted";
  const verbs: Verb[] = [held ? "release" : "hold", "prioritise", ...(runs ? (["evict"] as const) : [])];
  return (
    <>
      {/* By place: hold and release are one button, which keeps the focus while its word changes. */}
      {verbs.map((each, index) => (
        <button
          key={index}
          type="button"
          disabled={!job.may?.includes(each)}
          title={job.may?.includes(each) ? undefined : lacking(each, job)}
          onClick={() => setVerb(each)}
        >
          {WORDS[each].title}
        </button>
      ))}
      {verb && <Ask key={verb} jobs={[job]} verb={verb} close={() => setVerb(undefined)} />}
    </>
  );
}

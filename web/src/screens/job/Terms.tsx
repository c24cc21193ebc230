/** On which terms a job runs: since when, until when, and whether it may be evicted. */

import type { WorkloadDetail } from "../../api/schema";
import { useNow } from "../../app/now";
import { between, clock, span } from "../../text/time";

export function Terms({ job }: { job: WorkloadDetail }) {
  const now = useNow();
  const { landed, finished, maxRuntimeSeconds: most } = job;
  const runs = landed !== null && finished === null && job.state === "Running";
  const rows: [string, string][] = [];
  if (runs) rows.push(["runs since", `${clock(landed, now)}, for ${span(between(landed, now))}`]);
  if (runs && most !== null) {
    const end = new Date(Date.parse(landed) + most * 1000);
    const left = between(now, end);
    rows.push(["promised end", `${clock(end, now)}, ${left > 0 ? `in ${span(left)}` : `${span(-left)} ago`}`]);
  } else if (most !== null) rows.push(["promises to run", `at most ${span(most)}`]);
  else if (runs) rows.push(["promised end", "none"]);
  if (finished === null) rows.push(["may be evicted", job.preemptible ? "yes" : "no: it is not preemptible"]);
  return rows.map(([name, value]) => (
    <tr key={name}>
      <th scope="row">{name}</th>
      <td>{value}</td>
    </tr>
  ));
}

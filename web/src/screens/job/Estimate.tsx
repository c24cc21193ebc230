import type { Detail } from "../../api/schema";
import { useNow } from "../../app/now";
import { span } from "../../text/time";

/** A range with its record, never a lone moment; or that there is none. */
export function Estimate({ detail, waits }: { detail: Detail; waits: boolean }) {
  const now = useNow().getTime();
  if (!waits) return null;
  const { estimate } = detail;
  if (!estimate) return detail.noEstimate ? <p className="soft">{detail.noEstimate}</p> : null;
  const until = (time: string) => span((Date.parse(time) - now) / 1000);
  const from = Date.parse(estimate.from) <= now ? "now" : `in ${until(estimate.from)}`;
  const to = estimate.to ? `to ${until(estimate.to)} from now` : "or later";
  const likely = estimate.likely ? `, likely in ${until(estimate.likely)}` : "";
  const record = estimate.n
    ? `${Math.round((estimate.hitRate ?? 0) * 100)} % of such ranges held, n=${estimate.n} in 7 d`
    : "no such range of the last 7 d is over";
  return (
    <p>
      Starts {from} {to}
      {likely}, if nothing comes before it <small>({[estimate.basis, record].filter(Boolean).join("; ")})</small>
    </p>
  );
}

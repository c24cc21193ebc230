import type { Detail } from "../../api/detail";
import { useNow } from "../../app/now";
import { span } from "../../text/time";

/** A range with its record, never a lone moment; or that there is none. */
export function Estimate({ detail, waits }: { detail: Detail; waits: boolean }) {
  const now = useNow().getTime() / 1000;
  if (!waits) return null;
  const { estimate } = detail;
  if (!estimate) return null;
  const from = estimate.from <= now ? "now" : `in ${span(estimate.from - now)}`;
  const to = estimate.to === null ? "or later" : `to ${span(estimate.to - now)} from now`;
  const likely = estimate.likely === null ? "" : `, likely in ${span(estimate.likely - now)}`;
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

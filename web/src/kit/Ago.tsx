import { useNow } from "../app/now";
import { between, clock, exact, span } from "../text/time";

/** When something was, in the reader's zone, as everywhere on the page. */
export function At({ at }: { at: string }) {
  return (
    <time dateTime={at} title={exact(at)} className="whole">
      {clock(at, useNow())}
    </time>
  );
}

/** How long ago something was; the moment itself in the title. */
export function Ago({ at, suffix = "" }: { at: string | null | undefined; suffix?: string }) {
  const now = useNow();
  if (!at) return <span className="soft">–</span>;
  return (
    <time dateTime={at} title={exact(at)}>
      {span(between(at, now))}
      {suffix}
    </time>
  );
}

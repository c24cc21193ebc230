import { useQuery } from "@tanstack/react-query";
import * as queries from "../api/queries";
import { loginAddress } from "../kit/Panel";
import { clock, span } from "../text/time";
import { useFreshness, useLost } from "./freshness";
import { SERVER, useHealth } from "./health";
import { useNow } from "./now";

/** What makes the whole page doubtful: no server, no database, no controller, no login. */
export function Banner() {
  const { since } = useFreshness();
  const now = useNow();
  const lost = useLost();
  const bad = useHealth().filter((part) => part.level === "bad");
  const ended = bad.find((part) => part.name === "login");
  const { data: server } = useQuery(queries.meta());
  return (
    <div aria-live="polite">
      {ended && (
        <p className="banner banner-bad">
          {ended.text} <a href={loginAddress()}>Log in again</a>; what is still shown was read before
          {ended.since && ` ${clock(ended.since, now)}`}.
        </p>
      )}
      {!bad.length && lost && (
        <p className="banner banner-wait">
          Live updates lost {span(lost)} ago; showing data from {clock(since, now)}; retrying.
        </p>
      )}
      {!ended &&
        bad.map((part) => (
          <p key={part.name} className="banner banner-bad">
            {part.text} {part.act} {part.command && <code>{part.command}</code>}
            {part.name === SERVER && part.since && `Showing data from ${clock(part.since, now)}.`}
          </p>
        ))}
      {server?.authentication.length === 0 && (
        <p className="banner">No authentication: whoever reaches this server can read all jobs and change quota.</p>
      )}
    </div>
  );
}

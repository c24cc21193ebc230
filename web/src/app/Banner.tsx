import { useQuery } from "@tanstack/react-query";
import * as queries from "../api/queries";
import { loginAddress } from "../kit/Panel";
import { clock, span } from "../text/time";
import { useFreshness, useLost } from "./freshness";
import { useNow } from "./now";

/** What makes the whole page doubtful: no server, no controller, no login. */
export function Banner() {
  const { link, loggedIn, since } = useFreshness();
  const now = useNow();
  const lost = useLost();
  const { data, dataUpdatedAt } = useQuery({ ...queries.overview(), refetchInterval: 15_000 });
  const { data: server } = useQuery(queries.meta());
  const decides = !data || data.controller.state === "leading" || data.controller.state === "idle";
  return (
    <div aria-live="polite">
      {(link === "ended" || !loggedIn) && (
        <p className="banner banner-bad">
          Your login has ended. <a href={loginAddress()}>Log in again</a>; this page keeps what it shows.
        </p>
      )}
      {loggedIn && lost && (
        <p className="banner banner-wait">
          Live updates lost {span(lost)} ago; showing data from {clock(new Date(dataUpdatedAt || since), now)};
          retrying.
        </p>
      )}
      {!decides && <p className="banner banner-bad">{data.controller.text}</p>}
      {server?.authentication.length === 0 && (
        <p className="banner">No authentication: whoever reaches this server can read all jobs and change quota.</p>
      )}
    </div>
  );
}

import { useQuery } from "@tanstack/react-query";
import * as queries from "../api/queries";
import { decided } from "../text/decided";
import { Ago } from "../kit/Ago";
import { between, span } from "../text/time";
import { setPaused, useFreshness } from "./freshness";
import { useNow } from "./now";

/** Whether what is shown is live, the newest cycle, and the button that stops all changes. */
export function Clock() {
  const { link, since, paused, missed } = useFreshness();
  const { data } = useQuery(queries.overview());
  const now = useNow();
  const away = between(since, now);
  const words = {
    connecting: "connecting",
    live: "live",
    lost: `reconnecting, ${span(away)}`,
    ended: "not logged in",
  }[link];
  return (
    <span className="clock" role="status">
      <span className={`dot dot-${paused ? "paused" : link}`} aria-hidden="true" />
      {paused ? `paused${missed ? " – there is news" : ""}` : words}
      {data && data.controller.cycle !== null && (
        <>
          {" · cycle "}
          {data.controller.cycle}
          {" · "}
          <Ago at={decided(data)} />
        </>
      )}
      <button type="button" className="quiet" aria-pressed={paused} onClick={() => setPaused(!paused)}>
        {paused ? "Resume" : "Pause"}
      </button>
    </span>
  );
}

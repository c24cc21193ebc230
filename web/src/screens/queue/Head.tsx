/** Which queue it is, in which state, and what can be done to it. */

import { Link } from "@tanstack/react-router";
import type { QueueDetail } from "../../api/schema";
import { useNow } from "../../app/now";
import { Chip } from "../../kit/Chip";
import { CopyAs } from "../../kit/CopyAs";
import { Title } from "../../kit/Title";
import { grouped } from "../../text/quantity";
import { origin } from "../../text/origin";
import { States } from "./States";
import { path as at, sh } from "../../text/shell";

export function Head({ queue }: { queue: QueueDetail }) {
  const now = useNow();
  const names = queue.path.split(".");
  return (
    <header className="job-head">
      <Title>
        {names.map((name, index) => {
          const path = names.slice(0, index + 1).join(".");
          return index === names.length - 1 ? (
            name
          ) : (
            <span key={path}>
              <Link to="/queues/$path" params={{ path }}>
                {name}
              </Link>
              .
            </span>
          );
        })}
      </Title>
      <Chip word={queue.effectiveState} />
      {queue.closed && <span>{origin(queue.closed, queue.path, now)}</span>}
      <span className="soft">
        {grouped(queue.admittedWorkloads)} admitted, {grouped(queue.pendingWorkloads)} pending
        {queue.heldWorkloads > 0 && `, ${grouped(queue.heldWorkloads)} held`}
        {queue.unstartableWorkloads > 0 && (
          <>
            ,{" "}
            <Link to="/jobs" search={{ queue: queue.path, unstartable: "true" }}>
              {grouped(queue.unstartableWorkloads)} can never start
            </Link>
          </>
        )}
        ; weight {queue.weight}
        {queue.managedBy && `, managed by ${queue.managedBy}`}
      </span>
      <span className="spring" />
      <States queue={queue} />
      {queue.may.includes("edit") && (
        <Link to="/edit" search={{ root: queue.path }}>
          Edit quota
        </Link>
      )}
      <CopyAs queuer={sh`queue show ${queue.path}`} curl={at`/api/v1/queues/${queue.path}`} />
    </header>
  );
}

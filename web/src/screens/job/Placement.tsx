import { Link } from "@tanstack/react-router";
import type { WorkloadDetail } from "../../api/schema";
import { Part } from "../../kit/Panel";

/** Where its pods run, or are to run: hosts by domain. */
export function Placement({ job }: { job: WorkloadDetail }) {
  if (!job.admission) return null;
  return (
    <Part
      title="Placement"
      beside={
        <>
          <span className="soft">{job.admission.domains.join(", ")}</span>
          <Link to="/topology" search={{ job: job.uid }}>
            on the map
          </Link>
        </>
      }
    >
      {job.admission.placements.map((place) => {
        const bound = place.hosts && Object.keys(place.hosts).length > 0;
        const hosts = Object.entries(bound ? place.hosts! : place.nodes).sort(([one], [other]) =>
          one.localeCompare(other),
        );
        return (
          <div key={place.podSet + place.flavor}>
            <p>
              {place.held ?? place.count} × {place.podSet} on {place.flavor}{" "}
              <small>{bound ? `where its pods ${job.finished ? "ran" : "run"}` : "planned"}</small>
            </p>
            <ul className="hosts">
              {hosts.map(([host, count]) => (
                <li key={host} title={`${count} of ${place.podSet}`}>
                  {host}
                  {count > 1 && ` ×${count}`}
                </li>
              ))}
            </ul>
          </div>
        );
      })}
    </Part>
  );
}

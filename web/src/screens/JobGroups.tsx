/** Live jobs that have something in common, as one row: how many, what they ask for, and since when. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import * as queries from "../api/queries";
import { Ago } from "../kit/Ago";
import { Heads } from "../kit/Heads";
import { Answer, Empty } from "../kit/Panel";
import { demand, grouped } from "../text/quantity";

export const GROUPINGS = ["queue", "user", "reason", "state"] as const;
export type Grouping = (typeof GROUPINGS)[number];

export function JobGroups({ filter, by }: { filter: queries.JobFilter; by: Grouping }) {
  const query = useQuery(queries.jobGroups(filter, by));
  return (
    <Answer query={query}>
      {({ groups, groupsTotal }) =>
        groups?.length ? (
          <>
            <table className="plain facts">
              <Heads titles={[by, "jobs", "ask for", "oldest"]} numbers={["jobs", "oldest"]} />
              <tbody>
                {groups.map(({ key, jobs, amounts, oldest }) => (
                  <tr key={key}>
                    <th scope="row" className="target">
                      {key ? (
                        <Link to="/jobs" search={(old) => ({ ...old, group: "", [by]: key })}>
                          {key}
                        </Link>
                      ) : (
                        "none"
                      )}
                    </th>
                    <td className="number">{grouped(jobs)}</td>
                    <td>{demand(amounts)}</td>
                    <td className="number">
                      <Ago at={oldest} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
            {groupsTotal != null && groupsTotal > groups.length && (
              <p className="soft">{grouped(groupsTotal - groups.length)} smaller groups more.</p>
            )}
          </>
        ) : (
          <Empty>No live job matches.</Empty>
        )
      }
    </Answer>
  );
}

/** Whom it is for, and by which rules. */

import type { QueueDetail } from "../../api/schema";
import { short } from "../../text/quantity";

export function Policy({ queue }: { queue: QueueDetail }) {
  const rows = [...Object.entries(queue.policy), ...Object.entries(queue.access)];
  return (
    <>
      <p>
        {queue.namespaces.length
          ? `For namespaces ${queue.namespaces.join(", ")}.`
          : "Nobody may use it: no queue on its path names a namespace."}
      </p>
      <table className="plain">
        <tbody>
          {rows.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{typeof value === "string" ? value : JSON.stringify(value)}</td>
            </tr>
          ))}
          {queue.quota.map((row) => (
            <tr key={`${row.flavor}${row.resource}`}>
              <th scope="row">
                quota {short(row.resource)} {row.flavor && <small>{row.flavor}</small>}
              </th>
              <td>
                guaranteed {row.guaranteed ?? "–"}, limit {row.limit ?? "–"}, lend {row.lend ?? "all"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** How much may still start here, and what keeps it from more. */

import { useQuery } from "@tanstack/react-query";
import * as queries from "../../api/queries";
import { CopyAs } from "../../kit/CopyAs";
import { Heads } from "../../kit/Heads";
import { Panel } from "../../kit/Panel";
import { Scroll } from "../../kit/Scroll";
import { read, short } from "../../text/quantity";
import { path as at } from "../../text/shell";

const AMOUNTS = ["own", "borrowable", "unused", "may start now", "and by eviction"];

export function Room({ path }: { path: string }) {
  const query = useQuery(queries.headroom(path));
  return (
    <Panel title="May start now" query={query} tools={<CopyAs curl={at`/api/v1/queues/${path}/headroom`} />}>
      {(data) => (
        <>
          <p>{data.text}</p>
          <Scroll label="What may start, by resource">
            <table className="plain">
              <Heads
                titles={["resource", "flavor", ...AMOUNTS, "capped by", "largest gang in one"]}
                numbers={AMOUNTS}
              />
              <tbody>
                {data.rows.map((row) => (
                  <tr key={row.resource + row.flavor}>
                    <th scope="row">{short(row.resource)}</th>
                    <td>{row.flavor}</td>
                    <td className="number">{read(row.own, row.resource)}</td>
                    <td className="number">{read(row.borrowable, row.resource)}</td>
                    <td className="number">{read(row.free, row.resource)}</td>
                    <td className="number">
                      <b>{read(row.mayStartNow, row.resource)}</b>
                    </td>
                    <td className="number" title={row.reclaimedFrom.join(", ")}>
                      {row.reclaimable === "0" ? "–" : `up to ${read(row.reclaimable, row.resource)}`}
                    </td>
                    <td>{row.cappedBy ? `${row.cappedBy}${row.ancestor ? ` of ${row.ancestor}` : ""}` : "–"}</td>
                    <td className="whole">
                      {Object.entries(row.largestGang)
                        .map(([level, pods]) => `${level} ${pods}`)
                        .join(", ")}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </>
      )}
    </Panel>
  );
}

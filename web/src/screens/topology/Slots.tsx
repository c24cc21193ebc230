/** How many gangs of a shape fit now, by level. A row that is chosen shows on the map where. */

import { path, sh } from "../../text/shell";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import * as queries from "../../api/queries";
import type { Slots as Row } from "../../api/schema";
import { CopyAs } from "../../kit/CopyAs";
import { Heads } from "../../kit/Heads";
import { Panel } from "../../kit/Panel";
import { grouped } from "../../text/quantity";

const ANYWHERE = "any";
const TITLES = ["domains", "where it fits", "gangs that fit"];

interface Props {
  shape: string;
  /** The level whose row is chosen. */
  chosen: string | undefined;
  ask: (shape: string) => void;
  choose: (level: string) => void;
}

export function Slots({ shape, chosen, ask, choose }: Props) {
  const [typed, setTyped] = useState(shape);
  const query = useQuery(queries.slots(shape));
  return (
    <Panel
      title="How many gangs fit now"
      query={query}
      tools={
        <>
          <form
            className="row"
            onSubmit={(event) => {
              event.preventDefault();
              ask(typed.trim());
            }}
          >
            <label>
              shape{" "}
              <input
                value={typed}
                onChange={(event) => setTyped(event.target.value)}
                size={14}
                aria-describedby="shape-help"
              />
            </label>
            <button type="submit">Ask</button>
            <small id="shape-help">8xgpu:8 is 8 pods of 8 gpu each</small>
          </form>
          <CopyAs queuer={sh`topo --slots ${shape}`} curl={path`/api/v1/topology/slots?shape=${shape}`} />
        </>
      }
    >
      {(data) => (
        <table className="plain">
          <Heads
            titles={["in one", ...TITLES, "best domain", "pods that fit there", "on the map"]}
            numbers={[...TITLES, "pods that fit there"]}
          />
          <tbody>
            {data.rows.map((row) => (
              <Level key={row.level} row={row} chosen={row.level === chosen} choose={choose} />
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Level({ row, chosen, choose }: { row: Row; chosen: boolean; choose: (level: string) => void }) {
  return (
    <tr>
      <th scope="row">{row.level === ANYWHERE ? "anywhere" : row.level}</th>
      <td className="number">{grouped(row.domains)}</td>
      <td className="number">{grouped(row.fittingDomains)}</td>
      <td className="number">
        <b>{grouped(row.gangs)}</b>
      </td>
      <td>{row.bestPods > 0 ? row.best : "–"}</td>
      <td className="number">{grouped(row.bestPods)}</td>
      <td>
        {row.level !== ANYWHERE && row.fittingDomains > 0 && (
          <button
            type="button"
            aria-pressed={chosen}
            aria-label={`Show where it fits in one ${row.level}`}
            onClick={() => choose(chosen ? "" : row.level)}
          >
            show where
          </button>
        )}
      </td>
    </tr>
  );
}

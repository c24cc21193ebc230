/** How many gangs of a shape fit now, by level. A row that is chosen shows on the map where. */

import { path, sh } from "../../text/shell";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import * as queries from "../../api/queries";
import type { Slots as Row } from "../../api/schema";
import { CopyAs } from "../../kit/CopyAs";
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
          <thead>
            <tr>
              <th scope="col">in one</th>
              {TITLES.map((title) => (
                <th key={title} scope="col" className="number">
                  {title}
                </th>
              ))}
              <th scope="col">best domain</th>
              <th scope="col" className="number">
                pods that fit there
              </th>
              <th scope="col">on the map</th>
            </tr>
          </thead>
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

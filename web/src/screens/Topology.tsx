/** Where the free capacity is, and how large a gang it can take. */

import { path, sh } from "../text/shell";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import * as queries from "../api/queries";
import type { Domain, Topology as Answer } from "../api/schema";
import { CopyAs } from "../kit/CopyAs";
import { Filter } from "../kit/Filter";
import { Empty, Panel } from "../kit/Panel";
import { Title } from "../kit/Title";
import { amount, grouped, short, told } from "../text/quantity";

export function Topology() {
  const search = useSearch({ from: "/topology" });
  const navigate = useNavigate({ from: "/topology" });
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  const query = useQuery(queries.topology(search.level, search.resource));
  return (
    <>
      <Title hidden>Topology</Title>
      <Slots shape={search.shape ?? "8xgpu:8"} set={(shape) => set({ shape })} />
      <Panel
        title="Domains"
        query={query}
        tools={
          <>
            <Filter label="find a domain" search value={search.find ?? ""} set={(find) => set({ find })} />
            {query.data && <Levels of={query.data} choose={(level) => set({ level })} />}
            <CopyAs
              queuer="topo"
              curl={search.level ? path`/api/v1/topology?level=${search.level}` : "/api/v1/topology"}
            />
          </>
        }
      >
        {(data) => <Domains of={data} find={search.find ?? ""} />}
      </Panel>
    </>
  );
}

function Levels({ of, choose }: { of: Answer; choose: (level: string) => void }) {
  return (
    <span className="choice" role="group" aria-label="Level">
      {of.levels.map((level) => (
        <button key={level} type="button" aria-pressed={level === of.level} onClick={() => choose(level)}>
          {level}
        </button>
      ))}
    </span>
  );
}

function Slots({ shape, set }: { shape: string; set: (shape: string) => void }) {
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
              set(typed.trim());
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
              {["domains", "where it fits", "gangs that fit"].map((title) => (
                <th key={title} scope="col" className="number">
                  {title}
                </th>
              ))}
              <th scope="col">best domain</th>
              <th scope="col" className="number">
                pods that fit there
              </th>
            </tr>
          </thead>
          <tbody>
            {data.rows.map((row) => (
              <tr key={row.level}>
                <th scope="row">{row.level === "any" ? "anywhere" : row.level}</th>
                <td className="number">{grouped(row.domains)}</td>
                <td className="number">{grouped(row.fittingDomains)}</td>
                <td className="number">
                  <b>{grouped(row.gangs)}</b>
                </td>
                <td>{row.best ?? "–"}</td>
                <td className="number">{grouped(row.bestPods)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Domains({ of, find }: { of: Answer; find: string }) {
  const shown = of.domains.filter((domain) => domain.domain.includes(find));
  if (of.domains.length === 0) return <Empty>No node was seen yet.</Empty>;
  return (
    <>
      <p className="soft">
        {told(amount(of.free), of.resource)} {short(of.resource)} free; the largest free part in one {of.level} is{" "}
        {told(amount(of.largestFree), of.resource)}. Fragmentation {of.fragmentation.toFixed(2)}.
        {of.leftOut > 0 && ` ${grouped(of.leftOut)} further domains are not shown: those with least room.`}
      </p>
      {shown.length === 0 ? (
        <Empty>
          No {of.level} is called <code>{find}</code>.
        </Empty>
      ) : (
        <ul className="domains" aria-label={`Domains of level ${of.level}`}>
          {shown.map((domain) => (
            <Cell key={domain.domain} domain={domain} resource={of.resource} />
          ))}
        </ul>
      )}
    </>
  );
}

function Cell({ domain, resource }: { domain: Domain; resource: string }) {
  const whole = amount(domain.allocatable[resource]);
  const free = amount(domain.free[resource]);
  const used = whole > 0 ? ((whole - free) / whole) * 100 : 0;
  const out = domain.cordoned + domain.notReady;
  const words = `${domain.domain}: ${told(free, resource)} of ${told(whole, resource)} ${short(resource)} free`;
  return (
    <li className="domain" title={words}>
      <span className="domain-name">{domain.domain}</span>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect className="bar-track" width="100" height="8" />
        <rect className="bar-own" width={used} height="8" />
      </svg>
      <small>
        {told(free, resource)} free{domain.wholeNodes > 0 && domain.nodes > 1 && `, ${domain.wholeNodes} whole nodes`}
        {out > 0 && `, ${out} out`}
      </small>
    </li>
  );
}

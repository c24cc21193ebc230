/** Who is below what it deserves, who holds it, and by which figures queues are put in order. */

import { path, sh } from "../text/shell";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import * as queries from "../api/queries";
import type { QueueShare } from "../api/schema";
import { Chip } from "../kit/Chip";
import { CopyAs } from "../kit/CopyAs";
import { Filter } from "../kit/Filter";
import { Empty, Panel } from "../kit/Panel";
import { Title } from "../kit/Title";
import { demand, short } from "../text/quantity";

export function FairShare() {
  const { root = "root" } = useSearch({ from: "/fair-share" });
  const navigate = useNavigate({ from: "/fair-share" });
  const query = useQuery(queries.fairShare(root));
  return (
    <>
      <Title hidden>Fair share</Title>
      <Panel
        title="Who lacks what it is guaranteed"
        query={query}
        tools={
          <>
            <Filter
              label="below queue"
              search
              value={root}
              set={(value) => void navigate({ search: { root: value }, replace: true })}
            />
            <CopyAs queuer={sh`share ${root}`} curl={path`/api/v1/fair-share?root=${root}`} />
          </>
        }
      >
        {(data) =>
          data.pairs.length === 0 ? (
            <Empty>No queue waits for work that its guarantee covers.</Empty>
          ) : (
            <table className="plain">
              <thead>
                <tr>
                  <th scope="col">starved</th>
                  <th scope="col">lacks</th>
                  <th scope="col">which has borrowed it</th>
                </tr>
              </thead>
              <tbody>
                {data.pairs.map((pair) => (
                  <tr key={`${pair.starved}${pair.borrower}${pair.resource}`}>
                    <th scope="row">
                      <Link to="/queues/$path" params={{ path: pair.starved }}>
                        {pair.starved}
                      </Link>
                    </th>
                    <td>
                      {pair.amount} {short(pair.resource)}
                    </td>
                    <td>
                      {pair.borrower ? (
                        <Link to="/queues/$path" params={{ path: pair.borrower }}>
                          {pair.borrower}
                        </Link>
                      ) : (
                        "nobody: it is not borrowed"
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )
        }
      </Panel>
      <Panel title="How queues are compared" query={query}>
        {(data) => (
          <>
            <p className="soft">
              Share = above its guarantee / capacity / weight, of the resource where that is most; score = share + past
              use. The lower score goes first; whoever is within a guarantee goes before all scores.
            </p>
            <table className="plain">
              <thead>
                <tr>
                  <th scope="col">queue</th>
                  <th scope="col">guaranteed</th>
                  <th scope="col">used</th>
                  <th scope="col">by</th>
                  {["above", "capacity", "weight", "share", "past", "score"].map((title) => (
                    <th key={title} scope="col" className="number">
                      {title}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {data.items.map((each) => (
                  <Row key={each.path} of={each} />
                ))}
              </tbody>
            </table>
          </>
        )}
      </Panel>
    </>
  );
}

function Row({ of }: { of: QueueShare }) {
  const { now } = of;
  const depth = of.path.split(".").length - 2;
  return (
    <tr>
      <th scope="row" style={{ paddingInlineStart: `${depth * 1.2}rem` }}>
        <Link to="/queues/$path" params={{ path: of.path }}>
          {of.path.slice(of.path.lastIndexOf(".") + 1)}
        </Link>{" "}
        {of.entitled && <Chip word="info" label="entitled" />}
      </th>
      <td>{demand(of.guaranteed) || "–"}</td>
      <td>{demand(of.used) || "–"}</td>
      <td>{now.resource ? short(now.resource) : "–"}</td>
      <td className="number">{now.excess}</td>
      <td className="number">{now.capacity ?? "–"}</td>
      <td className="number">{now.weight}</td>
      <td className="number">{now.share.toFixed(3)}</td>
      <td className="number">{now.past.toFixed(3)}</td>
      <td className="number">
        <b>{now.score.toFixed(3)}</b>
      </td>
    </tr>
  );
}

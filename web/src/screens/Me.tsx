/** Who asks, what it may, and how the page looks in this browser. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import * as queries from "../api/queries";
import { setPreferences, usePreferences } from "../app/preferences";
import { Check } from "../kit/Check";
import { CopyAs } from "../kit/CopyAs";
import { Panel, Part } from "../kit/Panel";
import { Title } from "../kit/Title";

export function Me() {
  const query = useQuery(queries.me());
  const server = useQuery(queries.meta());
  const { theme, density, keys } = usePreferences();
  return (
    <>
      <Title hidden>Me</Title>
      <Panel title="Who you are here" query={query} tools={<CopyAs queuer="whoami" curl="/api/v1/me" />}>
        {(me) => (
          <table className="plain facts">
            <tbody>
              <tr>
                <th scope="row">name</th>
                <td>{me.name}</td>
              </tr>
              <tr>
                <th scope="row">groups</th>
                <td>{me.groups.join(", ") || "none"}</td>
              </tr>
              <tr>
                <th scope="row">reads the jobs of</th>
                <td>
                  {me.readsEverything
                    ? "all namespaces"
                    : me.namespaces.join(", ") || "no namespace; ask its admin for the role view"}
                </td>
              </tr>
              <tr>
                <th scope="row">may change</th>
                <td>
                  {me.administers.length === 0
                    ? "no queue; ask who administers one"
                    : me.administers.map((path) => (
                        <span key={path}>
                          <Link to="/queues/$path" params={{ path }}>
                            {path}
                          </Link>{" "}
                          and all below it{" "}
                        </span>
                      ))}
                </td>
              </tr>
            </tbody>
          </table>
        )}
      </Panel>
      <Part title="Looks, in this browser">
        <div className="row">
          <label>
            colours{" "}
            <select value={theme} onChange={(event) => setPreferences({ theme: event.target.value as typeof theme })}>
              <option value="system">as the system</option>
              <option value="light">light</option>
              <option value="dark">dark</option>
            </select>
          </label>
          <label>
            rows{" "}
            <select
              value={density}
              onChange={(event) => setPreferences({ density: event.target.value as typeof density })}
            >
              <option value="compact">compact</option>
              <option value="comfortable">comfortable</option>
            </select>
          </label>
          <Check on={keys} set={(on) => setPreferences({ keys: on })}>
            single-key shortcuts
          </Check>
        </div>
      </Part>
      <Panel title="The server" query={server}>
        {(meta) => (
          <p>
            Queuer {meta.version},{" "}
            {meta.authentication.length ? `logs in by ${meta.authentication.join(", ")}` : "without login"}.
          </p>
        )}
      </Panel>
    </>
  );
}

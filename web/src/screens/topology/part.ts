/** What of a large cluster is drawn: of more domains than eyes can search only those that somebody looks for. */

import { type Marks, matches } from "./draw";
import { type Host, within } from "./layout";

/** As many domains as are drawn without being asked for. */
export const MOST_DRAWN = 200;

export interface Part {
  hosts: readonly Host[];
  /** How many domains these hosts are in, and how many there are. */
  shown: number;
  all: number;
}

/** The hosts to draw by domains of the `depth`th level from the widest; 0: each host is a domain of its own. */
export function part(hosts: readonly Host[], depth: number, marks: Omit<Marks, "at">): Part {
  const domain = (host: Host) => (depth > 0 ? within(host.inside, depth) : host.name);
  const all = new Set(hosts.map(domain)).size;
  if (all <= MOST_DRAWN) return { hosts, shown: all, all };
  const wanted = hosts.filter(
    (host) =>
      (marks.find !== "" && matches(host, marks.find)) ||
      marks.job.has(host.name) ||
      marks.fits.has(host.name) ||
      marks.fits.has(domain(host)),
  );
  const shown = new Set([...new Set(wanted.map(domain))].slice(0, MOST_DRAWN));
  return { hosts: hosts.filter((host) => shown.has(domain(host))), shown: shown.size, all };
}

/** What is used, guaranteed, lent and asked for, by resource. Bars are parts of the cluster, all on one scale. */

import { useQuery } from "@tanstack/react-query";
import * as queries from "../../api/queries";
import type { Account, QueueDetail } from "../../api/schema";
import { useNow } from "../../app/now";
import { Chip } from "../../kit/Chip";
import { Empty } from "../../kit/Panel";
import { BarLegend, QuotaBar, amounts, reach } from "../../kit/QuotaBar";
import { Scroll } from "../../kit/Scroll";
import { Starved } from "../../kit/Starved";
import { origin } from "../../text/origin";
import { amount, read, short, told } from "../../text/quantity";

export function Accounts({ queue: { path, accounts: all, starvedSince } }: { queue: QueueDetail }) {
  const { data: root } = useQuery(queries.queue("root"));
  // Of one flavor alone the figures by flavor would only say the same again.
  const flavors = new Set(all.map((account) => account.flavor).filter((flavor) => flavor !== null));
  const accounts = flavors.size > 1 ? all : all.filter((account) => account.flavor === null);
  if (accounts.length === 0) return <Empty>No quota row names this queue, and nothing runs in it.</Empty>;
  const whole = new Map(root?.accounts.map((of) => [key(of), amount(of.limit) || reach(amounts(of))]));
  const part = Math.max(0, ...accounts.map((of) => reach(amounts(of)) / (whole.get(key(of)) || Infinity)));
  return (
    <Scroll label="Amounts">
      <table className="plain accounts">
        <thead>
          <tr>
            <th scope="col">resource</th>
            <th scope="col" className="accounts-bar">
              amounts
            </th>
            {["used", "guaranteed", "limit", "borrowed", "lent", "pending"].map((title) => (
              <th key={title} scope="col" className="number">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {accounts.map((account) => (
            <Row
              key={key(account)}
              of={account}
              path={path}
              since={starvedSince}
              scale={(whole.get(key(account)) ?? 0) * part}
              byFlavor={flavors.size > 1}
            />
          ))}
        </tbody>
      </table>
      <BarLegend />
      {part > 0 && <p className="legend">A whole bar is {percent(part)} of the cluster, for every resource.</p>}
    </Scroll>
  );
}

const key = ({ resource, flavor }: Account) => `${resource} ${flavor}`;

function percent(part: number): string {
  return `${part < 0.1 ? (part * 100).toFixed(1) : Math.round(part * 100)} %`;
}

interface RowProps {
  of: Account;
  path: string;
  /** Since when it is starved. */
  since: string | null;
  /** Of the bar; 0: what the cluster has is not known. */
  scale: number;
  byFlavor: boolean;
}

function Row({ of, path, since, scale, byFlavor }: RowProps) {
  const now = useNow();
  const over = amount(of.overLimit);
  return (
    <tr>
      <th scope="row">
        {short(of.resource)} {byFlavor && <small>{of.flavor ?? "all flavors"}</small>}{" "}
        {of.starved && <Starved since={since} />}{" "}
        {over > 0 && <Chip word="warning" label={`${told(over, of.resource)} over limit`} />}{" "}
        {over > 0 && <small>{origin(of.cut, path, now)}</small>} {of.remainder && <small>{of.remainder}</small>}
      </th>
      <td>
        <QuotaBar account={of} {...(scale > 0 && { scale })} />
      </td>
      {[of.used, of.guaranteed, of.limit, of.borrowed, of.lent, of.pending].map((value, index) => (
        <td key={index} className="number">
          {read(value, of.resource)}
        </td>
      ))}
    </tr>
  );
}

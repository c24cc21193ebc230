/** What is used, guaranteed, lent and asked for, by resource. */

import type { Account } from "../../api/schema";
import { Chip } from "../../kit/Chip";
import { Empty } from "../../kit/Panel";
import { QuotaBar } from "../../kit/QuotaBar";
import { short } from "../../text/quantity";

export function Accounts({ accounts: all }: { accounts: readonly Account[] }) {
  // Of one flavor alone the figures by flavor would only say the same again.
  const flavors = new Set(all.map((account) => account.flavor).filter((flavor) => flavor !== null));
  const accounts = flavors.size > 1 ? all : all.filter((account) => account.flavor === null);
  if (accounts.length === 0) return <Empty>No quota row names this queue, and nothing runs in it.</Empty>;
  return (
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
          <tr key={account.resource + account.flavor}>
            <th scope="row">
              {short(account.resource)} {flavors.size > 1 && <small>{account.flavor ?? "all flavors"}</small>}{" "}
              {account.starved && <Chip word="starved" />}
            </th>
            <td>
              <QuotaBar account={account} />
            </td>
            {[
              account.used,
              account.guaranteed,
              account.limit ?? "–",
              account.borrowed,
              account.lent,
              account.pending,
            ].map((value, index) => (
              <td key={index} className="number">
                {value}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

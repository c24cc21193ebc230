/** Which resource a screen shows: the one in the address if there is such a one, else a device. */

import { useQuery } from "@tanstack/react-query";
import * as queries from "../api/queries";
import type { Account } from "../api/schema";

interface Choice {
  names: readonly string[];
  /** Undefined while nothing is known of the cluster. */
  resource: string | undefined;
  /** What the address asks for, where nothing here has it. */
  unknown: string | undefined;
}

/** `more`: resources of what is shown, beside those of the cluster. */
export function useResource(asked: string | undefined, more: readonly { accounts: readonly Account[] }[] = []): Choice {
  const { data } = useQuery(queries.overview());
  const used = more.flatMap(({ accounts }) => accounts.map((account) => account.resource));
  return chosen(asked, [...new Set([...(data?.capacity.map((each) => each.resource) ?? []), ...used])]);
}

export function chosen(asked: string | undefined, names: readonly string[]): Choice {
  const usual = names.find((name) => name.includes("/")) ?? names[0];
  if (asked === undefined || names.length === 0) return { names, resource: asked ?? usual, unknown: undefined };
  return names.includes(asked)
    ? { names, resource: asked, unknown: undefined }
    : { names, resource: usual, unknown: asked };
}

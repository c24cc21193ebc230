/** Who changed it, when and why. */

import { useQuery } from "@tanstack/react-query";
import * as queries from "../../api/queries";
import { Answer, Empty } from "../../kit/Panel";
import { Entries } from "../Log";

export function Changes({ path }: { path: string }) {
  const query = useQuery(queries.audit(path));
  return (
    <Answer query={query}>
      {(data) =>
        data.items.length === 0 ? (
          <Empty>No change of this queue that you may see.</Empty>
        ) : (
          <Entries items={data.items} />
        )
      }
    </Answer>
  );
}

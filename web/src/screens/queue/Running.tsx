/** What runs here. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import * as queries from "../../api/queries";
import { JOB_COLUMNS, JobTable } from "../../kit/JobTable";
import { Answer, Empty } from "../../kit/Panel";

const COLUMNS = JOB_COLUMNS.filter((column) => column.id !== "reason");

export function Running({ path }: { path: string }) {
  const query = useInfiniteQuery(queries.jobs({ queue: path, state: "Admitted,Placing,Running,Evicting" }));
  const jobs = useMemo(() => query.data?.pages.flatMap((page) => page.items), [query.data]);
  return (
    <Answer query={{ ...query, data: jobs }}>
      {() =>
        jobs?.length ? (
          <JobTable
            label="Running jobs"
            jobs={jobs}
            columns={COLUMNS}
            more={query.hasNextPage && !query.isFetchingNextPage ? () => void query.fetchNextPage() : undefined}
          />
        ) : (
          <Empty>Nothing that you may see runs here.</Empty>
        )
      }
    </Answer>
  );
}

/** Jobs as rows, wherever jobs are listed. */

import { Link, useNavigate } from "@tanstack/react-router";
import type { Workload } from "../api/schema";
import { demand } from "../text/quantity";
import { Ago } from "./Ago";
import { Chip } from "./Chip";
import { Path } from "./Path";
import { type Column, type Marks, Table } from "./Table";
import { Why } from "./Why";

export const JOB_COLUMNS: readonly Column<Workload>[] = [
  {
    id: "name",
    title: "job",
    width: "minmax(15ch, 2.5fr)",
    cell: (job) => (
      <>
        <Link
          to="/jobs/$uid"
          params={{ uid: job.uid }}
          tabIndex={-1}
          title={`${job.kind} ${job.namespace}/${job.name}`}
        >
          {job.name}
        </Link>{" "}
        <small>{job.namespace}</small>
      </>
    ),
  },
  { id: "state", title: "state", width: "12ch", cell: (job) => <Chip word={job.state} /> },
  {
    id: "reason",
    title: "why",
    width: "minmax(13ch, 5fr)",
    cell: (job) =>
      job.failure ??
      (job.reason && (
        <span title={`${job.reason.token}: ${job.reason.text}`}>
          <Why of={job.reason} />
        </span>
      )),
  },
  {
    id: "queue",
    title: "queue",
    width: "minmax(15ch, 2.5fr)",
    cell: (job) => (
      <Link to="/queues/$path" params={{ path: job.queue }} tabIndex={-1}>
        <Path of={job.queue} />
      </Link>
    ),
  },
  {
    id: "demand",
    title: "asks for",
    width: "minmax(13ch, 1.4fr)",
    cell: (job) => <span title={demand(job.demand)}>{demand(job.demand)}</span>,
  },
  { id: "user", title: "user", width: "minmax(6ch, 1fr)", cell: (job) => job.user },
  {
    id: "priority",
    title: "priority",
    width: "6ch",
    number: true,
    cell: (job) => job.override?.priority?.value ?? job.priority,
  },
  { id: "age", title: "submitted", width: "8ch", number: true, cell: (job) => <Ago at={job.submitted} /> },
];

/** Columns that are shown only where somebody asks for them. */
export const MORE_COLUMNS: readonly Column<Workload>[] = [
  { id: "kind", title: "kind", width: "14ch", cell: (job) => job.kind },
  { id: "admitted", title: "admitted", width: "10ch", number: true, cell: (job) => <Ago at={job.admitted} /> },
  { id: "landed", title: "landed", width: "10ch", number: true, cell: (job) => <Ago at={job.landed} /> },
  { id: "finished", title: "finished", width: "10ch", number: true, cell: (job) => <Ago at={job.finished} /> },
  { id: "attempt", title: "attempt", width: "8ch", number: true, cell: (job) => job.attempt },
  {
    id: "domains",
    title: "where",
    width: "14ch",
    cell: (job) => <span title={job.domains.join(", ")}>{job.domains.join(", ")}</span>,
  },
];

interface Props {
  label: string;
  jobs: readonly Workload[];
  columns?: readonly Column<Workload>[];
  more?: (() => void) | undefined;
  count?: number;
  marks?: Marks;
}

export function JobTable({ label, jobs, columns = JOB_COLUMNS, more, count, marks }: Props) {
  const navigate = useNavigate();
  return (
    <Table
      label={label}
      columns={columns}
      rows={jobs}
      id={(job) => job.uid}
      open={(job) => void navigate({ to: "/jobs/$uid", params: { uid: job.uid } })}
      more={more}
      {...(count !== undefined && { count })}
      {...(marks && { marks })}
    />
  );
}

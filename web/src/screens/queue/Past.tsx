/** Amounts and waiting times of the last day, week or month. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import * as queries from "../../api/queries";
import { Answer, Empty } from "../../kit/Panel";
import { Series } from "../../kit/Series";
import { amount, grouped, short } from "../../text/quantity";
import { span } from "../../text/time";

const RANGES = { "1 d": [86_400, "5m"], "7 d": [604_800, "1h"], "30 d": [2_592_000, "6h"] } as const;

export function Past({ path }: { path: string }) {
  const navigate = useNavigate({ from: "/queues/$path" });
  const search = useSearch({ from: "/queues/$path" });
  const range = search.range && search.range in RANGES ? (search.range as keyof typeof RANGES) : "1 d";
  const [seconds, step] = RANGES[range];
  // To the minute, so that the question stays the same while one looks.
  const [since, until] = useMemo(() => {
    const minute = Math.floor(Date.now() / 60_000) * 60_000;
    return [new Date(minute - seconds * 1000).toISOString(), new Date(minute).toISOString()];
  }, [seconds]);
  const query = useQuery(queries.history(path, since, step));
  const chosen = search.resource;
  return (
    <>
      <span className="choice" role="group" aria-label="Time">
        {(Object.keys(RANGES) as (keyof typeof RANGES)[]).map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={name === range}
            onClick={() => void navigate({ search: (old) => ({ ...old, range: name }), replace: true })}
          >
            {name}
          </button>
        ))}
      </span>
      <Answer query={query}>
        {(data) => {
          const names = [...new Set(data.points.flatMap((point) => point.accounts.map((each) => each.resource)))];
          const resource = chosen ?? names.find((name) => name.includes("/")) ?? names[0];
          if (!resource) return <Empty>No cycle of this time has recorded anything here.</Empty>;
          return (
            <>
              <Graph points={data.points} resource={resource} seconds={seconds} step={data.stepSeconds} until={until} />
              <p className="soft">
                {grouped(data.waits.started)} jobs started
                {data.waits.p50Seconds !== null && `; half of them within ${span(data.waits.p50Seconds)}`}
                {data.waits.p90Seconds !== null && `, nine tenths within ${span(data.waits.p90Seconds)}`}.
              </p>
            </>
          );
        }}
      </Answer>
    </>
  );
}

type Points = Awaited<ReturnType<NonNullable<ReturnType<typeof queries.history>["queryFn"]>>>["points"];

function Graph({
  points,
  resource,
  seconds,
  step,
  until,
}: {
  points: Points;
  resource: string;
  seconds: number;
  step: number;
  until: string;
}) {
  // A young queue has no day of figures: what there is fills the picture.
  const age = points[0] ? (Date.parse(until) - Date.parse(points[0].at)) / 1000 : 0;
  const { at, lines } = useMemo(() => {
    const rows = points.map((point) =>
      point.accounts.find((each) => each.resource === resource && each.flavor === null),
    );
    return {
      at: points.map((point) => point.at),
      lines: [
        { label: "used", values: rows.map((row) => amount(row?.used)), colour: "--own", fill: true },
        { label: "guaranteed", values: rows.map((row) => amount(row?.guaranteed)), colour: "--ink", dash: [2, 3] },
        {
          label: "pending",
          values: rows.map((row) => amount(row?.pending)),
          colour: "--pending",
          dash: [6, 3],
          backlog: true,
        },
      ],
    };
  }, [points, resource]);
  return (
    <Series
      label={`${short(resource)} used, guaranteed and pending`}
      at={at}
      lines={lines}
      seconds={Math.min(seconds, Math.max(3 * step, age))}
      step={step}
      until={until}
    />
  );
}

/** Amounts over time, drawn by uPlot in the page's colours; the same figures as a table for who wants to read them. */

import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { grouped } from "../text/quantity";
import { coloursAt, useTheme } from "./colours";

export interface Line {
  label: string;
  values: readonly number[];
  /** A custom property of CSS. */
  colour: string;
  fill?: boolean;
  dash?: number[];
}

interface Props {
  label: string;
  at: readonly string[];
  lines: readonly Line[];
  /** Seconds that are shown, up to the last moment. */
  seconds?: number;
  height?: number;
}

export function Series({ label, at, lines, seconds = 0, height = 160 }: Props) {
  const [asTable, setAsTable] = useState(false);
  return (
    <figure className="series">
      {asTable ? (
        <Figures at={at} lines={lines} />
      ) : (
        <Chart label={label} at={at} lines={lines} seconds={seconds} height={height} />
      )}
      <figcaption>
        <button type="button" className="quiet" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {asTable ? "as a picture" : "as a table"}
        </button>
      </figcaption>
    </figure>
  );
}

function Chart({ label, at, lines, seconds, height }: Required<Props>) {
  const frame = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const colour = coloursAt(element);
    const grid = { stroke: colour("var(--line)"), width: 1 };
    const axis = { stroke: colour("var(--soft)"), grid, ticks: { show: false } };
    const times = at.map((moment) => Date.parse(moment) / 1000);
    const [first = 0, last = 0] = [times[0], times.at(-1)];
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height,
        cursor: { drag: { x: false, y: false } },
        scales: {
          x: { range: () => [seconds ? last - seconds : first, last] },
          y: { range: (_plot, _least, most) => [0, Math.max(1, most * 1.05)] },
        },
        axes: [
          { ...axis, values: (_plot, values) => values.map(hour) },
          { ...axis, size: 56, values: (_plot, values) => values.map((value) => grouped(value)) },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.label,
            stroke: colour(`var(${line.colour})`),
            width: 1.5,
            ...(line.fill && { fill: colour(`color-mix(in srgb, var(${line.colour}) 20%, transparent)`) }),
            ...(line.dash && { dash: line.dash }),
            points: { show: at.length < 2 },
          })),
        ],
      },
      [times, ...lines.map((line) => [...line.values])],
      element,
    );
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [at, lines, seconds, height, theme]);
  return <div ref={frame} role="img" aria-label={label} />;
}

/** `18:40`, and the day at midnight. */
function hour(seconds: number): string {
  const moment = new Date(seconds * 1000);
  const time = moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return time === "00:00" ? moment.toLocaleDateString([], { day: "numeric", month: "short" }) : time;
}

function Figures({ at, lines }: Pick<Props, "at" | "lines">) {
  return (
    <div className="scroll">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">time</th>
            {lines.map((line) => (
              <th scope="col" key={line.label}>
                {line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {at.map((moment, index) => (
            <tr key={moment}>
              <td>{new Date(moment).toLocaleString()}</td>
              {lines.map((line) => (
                <td key={line.label} className="number">
                  {grouped(line.values[index] ?? 0)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

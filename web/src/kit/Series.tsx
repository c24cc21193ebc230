/** Amounts over time, drawn by uPlot in the page's colours; the same figures as a table for who wants to read them. */

import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { grouped } from "../text/quantity";
import { coloursAt, useTheme } from "./colours";
import { withGaps } from "./gaps";

export interface Line {
  label: string;
  values: readonly number[];
  /** A custom property of CSS. */
  colour: string;
  fill?: boolean;
  dash?: number[];
}

/** Counts that are marked at the edge of the picture, where there are any. */
export interface Ticks {
  label: string;
  values: readonly number[];
  colour: string;
  edge: "top" | "bottom";
}

interface Props {
  label: string;
  at: readonly string[];
  lines: readonly Line[];
  ticks?: readonly Ticks[];
  /** Seconds that each moment stands for; where one is missing nothing was recorded. */
  step: number;
  /** Seconds that are shown, up to the last moment. */
  seconds?: number;
  height?: number;
}

const NO_TICKS: readonly Ticks[] = [];

export function Series({ label, at, lines, ticks = NO_TICKS, step, seconds = 0, height = 160 }: Props) {
  const [asTable, setAsTable] = useState(false);
  return (
    <figure className="series">
      {asTable ? (
        <Figures at={at} lines={lines} ticks={ticks} />
      ) : (
        <Chart label={label} at={at} lines={lines} ticks={ticks} step={step} seconds={seconds} height={height} />
      )}
      <figcaption>
        <button type="button" className="quiet" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {asTable ? "as a picture" : "as a table"}
        </button>
      </figcaption>
    </figure>
  );
}

function Chart({ label, at, lines, ticks, step, seconds, height }: Required<Props>) {
  const frame = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const colour = coloursAt(element);
    const grid = { stroke: colour("var(--line)"), width: 1 };
    const axis = { stroke: colour("var(--soft)"), grid, ticks: { show: false } };
    const moments = at.map((moment) => Date.parse(moment) / 1000);
    const values = (of: readonly { values: readonly number[] }[]) => of.map((each) => each.values);
    const { times, rows } = withGaps(moments, values(lines), values(ticks), step);
    const [first = 0, last = 0] = [times[0], times.at(-1)];
    const stepped = uPlot.paths.stepped!({ align: 1 });
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
            paths: stepped,
            points: { show: false },
          })),
          // Drawn as ticks; the legend has their figures.
          ...ticks.map((tick) => ({
            label: tick.label,
            stroke: colour(`var(${tick.colour})`),
            paths: () => null,
            points: { show: false },
          })),
        ],
        hooks: { draw: [(plot) => drawTicks(plot, ticks, lines.length + 1, colour)] },
      },
      [times, ...rows],
      element,
    );
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [at, lines, ticks, step, seconds, height, theme]);
  return <div ref={frame} role="img" aria-label={label} />;
}

const TICK_PX = 7;

/** Triangles: what starts rises from the ground, what is evicted hangs from above. */
function drawTicks(plot: uPlot, ticks: readonly Ticks[], from: number, colour: (name: string) => string) {
  const { ctx, bbox } = plot;
  const size = TICK_PX * devicePixelRatio;
  ticks.forEach((tick, index) => {
    ctx.fillStyle = colour(`var(${tick.colour})`);
    const [edge, tip] = tick.edge === "top" ? [bbox.top, size] : [bbox.top + bbox.height, -size];
    plot.data[0].forEach((time, at) => {
      if (!plot.data[from + index]?.[at]) return;
      const x = plot.valToPos(time, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) return;
      ctx.beginPath();
      ctx.moveTo(x - size / 2, edge);
      ctx.lineTo(x + size / 2, edge);
      ctx.lineTo(x, edge + tip);
      ctx.fill();
    });
  });
}

/** `18:40`, and the day at midnight. */
function hour(seconds: number): string {
  const moment = new Date(seconds * 1000);
  const time = moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return time === "00:00" ? moment.toLocaleDateString([], { day: "numeric", month: "short" }) : time;
}

function Figures({ at, lines, ticks }: Required<Pick<Props, "at" | "lines" | "ticks">>) {
  const columns = [...lines, ...ticks];
  return (
    <div className="scroll">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">time</th>
            {columns.map((line) => (
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
              {columns.map((line) => (
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

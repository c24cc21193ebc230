/** Amounts over time, drawn by uPlot in the page's colours; the same figures as a table for who wants to read them. */

import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { grouped } from "../text/quantity";
import { clock } from "../text/time";
import { At } from "./Ago";
import { Heads } from "./Heads";
import { Scroll } from "./Scroll";
import { coloursAt, useTheme } from "./colours";
import { withGaps } from "./gaps";
import { scaled } from "./rem";

export interface Line {
  label: string;
  values: readonly number[];
  /** A custom property of CSS. */
  colour: string;
  fill?: boolean;
  dash?: number[];
  /** It may run off the top, so that the other lines stay readable; the legend has its figures. */
  backlog?: boolean;
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
  /** Seconds that are shown, up to the end. */
  seconds?: number;
  /** Nothing is drawn beyond; the last moment goes on until then at most. */
  until?: string;
  height?: number;
}

/** A backlog is drawn up to so many times what is highest beside it. */
const BACKLOG = 1.25;
const NO_TICKS: readonly Ticks[] = [];

export function Series({ label, at, lines, ticks = NO_TICKS, step, seconds = 0, until = "", height = 160 }: Props) {
  const [asTable, setAsTable] = useState(false);
  return (
    <figure className="series">
      {asTable ? (
        <Figures at={at} lines={lines} ticks={ticks} />
      ) : (
        <Chart label={label} at={at} lines={lines} ticks={ticks} {...{ step, seconds, until, height }} />
      )}
      <figcaption>
        <button type="button" className="quiet" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {asTable ? "as a picture" : "as a table"}
        </button>
      </figcaption>
    </figure>
  );
}

function Chart({ label, at, lines, ticks, step, seconds, until, height }: Required<Props>) {
  const frame = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const colour = coloursAt(element);
    const grid = { stroke: colour("var(--line)"), width: 1 };
    const axis = { stroke: colour("var(--soft)"), grid, ticks: { show: false }, font: `${scaled(12)}px system-ui` };
    const moments = at.map((moment) => Date.parse(moment) / 1000);
    const values = (of: readonly { values: readonly number[] }[]) => of.map((each) => each.values);
    const end = until ? Date.parse(until) / 1000 : Infinity;
    const { times, rows } = withGaps(moments, values(lines), values(ticks), step, end);
    const newest = times.lastIndexOf(moments.at(-1) ?? 0);
    const front = Math.max(1, ...lines.filter((line) => !line.backlog).flatMap((line) => line.values));
    const [first = 0, last = 0] = [times[0], times.at(-1)];
    const stepped = uPlot.paths.stepped!({ align: 1 });
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height,
        cursor: { drag: { x: false, y: false } },
        scales: {
          x: { range: () => [seconds ? last - seconds : first, last] },
          y: { range: (_plot, _least, most) => [0, Math.max(1, Math.min(most, front * BACKLOG) * 1.05)] },
        },
        axes: [
          { ...axis, size: scaled(30), values: (_plot, values) => values.map(hour) },
          { ...axis, size: scaled(56), values: (_plot, values) => values.map((value) => grouped(value)) },
        ],
        series: [
          { value: (_plot, time) => (time == null ? "–" : clock(new Date(time * 1000), new Date())) },
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
        hooks: {
          // Without a pointer the legend tells the newest figures.
          ready: [(plot) => plot.setLegend({ idx: newest })],
          setCursor: [(plot) => plot.cursor.idx == null && plot.setLegend({ idx: newest }, false)],
          draw: [(plot) => drawTicks(plot, ticks, lines.length + 1, colour)],
        },
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
  }, [at, lines, ticks, step, seconds, until, height, theme]);
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
    <Scroll label="Figures" className="scroll">
      <table className="plain">
        <Heads titles={["time", ...columns.map((line) => line.label)]} />
        <tbody>
          {at.map((moment, index) => (
            <tr key={moment}>
              <td>
                <At at={moment} />
              </td>
              {columns.map((line) => (
                <td key={line.label} className="number">
                  {grouped(line.values[index] ?? 0)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** The map of all hosts on a canvas. Pointer and arrow keys tell each host's name below it; the table has the same. */

import { type KeyboardEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import { useTheme } from "../../kit/colours";
import { short, told } from "../../text/quantity";
import { type Marks, draw, matches } from "./draw";
import { type Cell, type Host, cellAt, layout, next } from "./layout";

interface Props extends Omit<Marks, "at"> {
  hosts: readonly Host[];
  /** How many hosts there are, those that are not drawn included. */
  among: number;
  /** Which level the boxes are of, counted from the widest, and its name. */
  depth: number;
  level: string;
  resource: string;
}

export function Picture({ hosts, among, depth, level, resource, job, fits, find }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(frame);
  const theme = useTheme();
  const map = useMemo(() => layout(hosts, depth, width), [hosts, depth, width]);
  const cells = useMemo(() => map.boxes.flatMap((box) => box.cells), [map]);
  const [name, setName] = useState<string>();
  const at = cells.find((cell) => cell.host.name === name);

  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, map, width, { job, fits, find, at });
  }, [map, width, job, fits, find, at, theme]);

  const show = (cell: Cell | undefined) => {
    const view = frame.current;
    if (!cell || !view) return;
    if (cell.y < view.scrollTop || cell.y > view.scrollTop + view.clientHeight - 30)
      view.scrollTo({ top: Math.max(0, cell.y - view.clientHeight / 2) });
  };
  const sought = find ? cells.filter((cell) => matches(cell.host, find)) : [];
  const wanted = sought[0] ?? cells.find((cell) => job.has(cell.host.name));
  const wantedName = wanted?.host.name;
  useEffect(() => show(wanted), [wantedName]); // eslint-disable-line react-hooks/exhaustive-deps

  const point = (event: PointerEvent<HTMLCanvasElement>) =>
    setName(cellAt(map, event.nativeEvent.offsetX, event.nativeEvent.offsetY)?.host.name);
  const walk = (event: KeyboardEvent) => {
    const to = event.key.startsWith("Arrow") ? (at ? next(cells, at, event.key) : cells[0]) : undefined;
    if (!to) return;
    setName(to.host.name);
    show(to);
    event.preventDefault();
  };
  return (
    <>
      <p className="map-told" aria-live="polite">
        {at
          ? words(at.host, resource, job)
          : find
            ? `${sought.length} of ${among} hosts match ${find}.`
            : "Point at a host, or walk with the arrow keys, for its name."}
      </p>
      <div className="map" ref={frame}>
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label={`Map of ${hosts.length} hosts by ${level}; the table has the same`}
          onPointerMove={point}
          onPointerLeave={() => setName(undefined)}
          onFocus={() => name ?? setName(wantedName ?? cells[0]?.host.name)}
          onBlur={() => setName(undefined)}
          onKeyDown={walk}
        />
      </div>
    </>
  );
}

function words(host: Host, resource: string, job: ReadonlySet<string>): string {
  const place = host.inside ? ` in ${host.inside}` : "";
  const free = `${told(host.free, resource)} of ${told(host.whole, resource)} ${short(resource)} free`;
  return `${host.name}${place}: ${free}${host.out && `, ${host.out}`}${job.has(host.name) ? ", has pods of this job" : ""}`;
}

function useWidth(frame: React.RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    return () => watch.disconnect();
  }, [frame]);
  return width;
}

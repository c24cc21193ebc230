/** The map of all hosts on a canvas. Pointer and arrow keys tell each host's name below it; the table has the same. */

import { type KeyboardEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import { useTheme } from "../../kit/colours";
import { scaled } from "../../kit/rem";
import { useWidth } from "../../kit/width";
import type { HeldFor } from "../../api/schema";
import { useNow } from "../../app/now";
import { short, told } from "../../text/quantity";
import { clock } from "../../text/time";
import { type Marks, draw, matches } from "./draw";
import { type Cell, type Host, cellAt, growth, layout, next } from "./layout";

/** A job that room is kept for, and from when on. */
export function holder({ namespace, name, queue, start }: HeldFor, now: Date): string {
  const who = name ? `${namespace}/${name}` : `a job of ${queue}`;
  return start && Date.parse(start) > now.getTime() ? `${who} from ${clock(start, now)}` : who;
}

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
  // The map is laid out at the usual size of text, and drawn at the reader's; a small one larger.
  const usual = useWidth(frame) / scaled(1);
  const theme = useTheme();
  const now = useNow();
  const map = useMemo(() => layout(hosts, depth, usual), [hosts, depth, usual]);
  const grown = growth(map, usual);
  const [zoom, width] = [scaled(grown), usual / grown];
  const cells = useMemo(() => map.boxes.flatMap((box) => box.cells), [map]);
  const [name, setName] = useState<string>();
  const at = cells.find((cell) => cell.host.name === name);

  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, map, width, zoom, { job, fits, find, at });
  }, [map, width, zoom, job, fits, find, at, theme]);

  const show = (cell: Cell | undefined) => {
    const view = frame.current;
    if (!cell || !view) return;
    const y = cell.y * zoom;
    if (y < view.scrollTop || y > view.scrollTop + view.clientHeight - scaled(30))
      view.scrollTo({ top: Math.max(0, y - view.clientHeight / 2) });
  };
  const sought = find ? cells.filter((cell) => matches(cell.host, find)) : [];
  const wanted = sought[0] ?? cells.find((cell) => job.has(cell.host.name));
  const wantedName = wanted?.host.name;
  useEffect(() => show(wanted), [wantedName]); // eslint-disable-line react-hooks/exhaustive-deps

  const point = (event: PointerEvent<HTMLCanvasElement>) =>
    setName(cellAt(map, event.nativeEvent.offsetX / zoom, event.nativeEvent.offsetY / zoom)?.host.name);
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
          ? words(at.host, resource, job, now)
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

function words(host: Host, resource: string, job: ReadonlySet<string>, now: Date): string {
  const place = host.inside ? ` in ${host.inside}` : "";
  const free = `${told(host.free, resource)} of ${told(host.whole, resource)} ${short(resource)} free`;
  const kept = host.heldFor.map((each) => holder(each, now)).join("; ");
  const held = host.reserved > 0 ? `, ${told(host.reserved, resource)} reserved` : "";
  return `${host.name}${place}: ${free}${held}${kept && `; kept for ${kept}`}${host.out && `, ${host.out}`}${job.has(host.name) ? ", has pods of this job" : ""}`;
}

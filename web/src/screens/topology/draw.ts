/** Paints the map: a frame for each domain, a cell for each host, a pip for each device. Shapes say what colours say. */

import { coloursAt } from "../../kit/colours";
import { short } from "../../text/quantity";
import { type Box, CELL, type Cell, HEAD, type Host, type Layout } from "./layout";

/** What is made to stand out. */
export interface Marks {
  /** Hosts of the chosen job. */
  job: ReadonlySet<string>;
  /** Domains and hosts in which the shape fits. */
  fits: ReadonlySet<string>;
  /** Part of a name; others are faint. Empty: nobody is looked for. */
  find: string;
  at: Cell | undefined;
}

const MOST_PIPS = 16;
const FAINT = 0.18;
const HATCH = 3;

export function matches(host: Host, find: string): boolean {
  return find === "" || host.name.includes(find) || host.inside.includes(find);
}

/** `zoom`: of the layout, to the size of the reader's text. */
export function draw(canvas: HTMLCanvasElement, map: Layout, width: number, zoom: number, marks: Marks): void {
  const ratio = window.devicePixelRatio * zoom;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(map.height * ratio);
  canvas.style.height = `${map.height * zoom}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const colour = coloursAt(canvas);
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (const box of map.boxes) {
    frame(pen, box, marks.fits.has(box.path), colour);
    for (const cell of box.cells) {
      pen.globalAlpha = matches(cell.host, marks.find) ? 1 : FAINT;
      host(pen, cell, colour);
      if (marks.fits.has(cell.host.name)) outline(pen, cell, colour("var(--good)"), 1);
      if (marks.job.has(cell.host.name)) outline(pen, cell, colour("var(--borrowed)"), 2);
    }
    pen.globalAlpha = 1;
  }
  if (marks.at) outline(pen, marks.at, colour("var(--focus)"), 2);
}

type Colour = (colour: string) => string;

function frame(pen: CanvasRenderingContext2D, box: Box, fits: boolean, colour: Colour) {
  pen.lineWidth = fits ? 2 : 1;
  pen.strokeStyle = colour(fits ? "var(--good)" : "var(--line)");
  pen.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
  pen.fillStyle = colour(fits ? "var(--good)" : "var(--soft)");
  const name = box.path ? named(pen, box.path, box.width - 10 - (fits ? 14 : 0)) : "in no domain";
  pen.fillText(`${fits ? "✓ " : ""}${name}`, box.x + 5, box.y + HEAD / 2 + 1, box.width - 10);
}

/** With the domains that it is in, where there is room for them. */
function named(pen: CanvasRenderingContext2D, path: string, room: number): string {
  const names = path.split("/");
  const from = names.findIndex((_, index) => pen.measureText(names.slice(index).join(" / ")).width <= room);
  return from < 0 ? short(path) : names.slice(from).join(" / ");
}

/** What is used is filled, what is reserved is hatched. */
function host(pen: CanvasRenderingContext2D, { host: { used, reserved, whole, out }, x, y }: Cell, colour: Colour) {
  pen.fillStyle = colour("var(--track)");
  pen.fillRect(x, y, CELL.width, CELL.height);
  if (!out && whole > 0) {
    const end = Math.min(whole, used + reserved);
    if (reserved > 0)
      hatch(pen, x + (used / whole) * CELL.width, x + (end / whole) * CELL.width, y, colour("var(--borrowed)"));
    pen.fillStyle = colour("var(--own)");
    if (Number.isInteger(whole) && whole <= MOST_PIPS) {
      const step = CELL.width / whole;
      for (let pip = 0; pip < used; pip += 1) pen.fillRect(x + pip * step + 0.5, y + 1, step - 1, CELL.height - 2);
    } else pen.fillRect(x, y + 1, (used / whole) * CELL.width, CELL.height - 2);
  }
  if (out) strike(pen, x, y, out === "not ready", colour("var(--bad)"));
}

/** Slanted lines from one edge to another. */
function hatch(pen: CanvasRenderingContext2D, left: number, right: number, y: number, colour: string) {
  pen.save();
  pen.beginPath();
  pen.rect(left + 0.5, y + 1, right - left - 1, CELL.height - 2);
  pen.clip();
  pen.beginPath();
  for (let x = left - CELL.height; x < right; x += HATCH) {
    pen.moveTo(x, y + CELL.height);
    pen.lineTo(x + CELL.height, y);
  }
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2;
  pen.stroke();
  pen.restore();
}

/** A stroke through a host that is cordoned, a cross through one that is not ready. */
function strike(pen: CanvasRenderingContext2D, x: number, y: number, cross: boolean, colour: string) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, y + CELL.height);
  pen.lineTo(x + CELL.width, y);
  if (cross) {
    pen.moveTo(x, y);
    pen.lineTo(x + CELL.width, y + CELL.height);
  }
  pen.stroke();
}

function outline(pen: CanvasRenderingContext2D, { x, y }: Cell, colour: string, width: number) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.strokeRect(x - 1, y - 1, CELL.width + 2, CELL.height + 2);
}

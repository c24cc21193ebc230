/** Where capacity goes: each queue as wide as what it uses or is guaranteed, below its parent. The tree is its table. */

import { Link } from "@tanstack/react-router";
import { hierarchy, partition } from "d3-hierarchy";
import { useRef } from "react";
import type { Account, Queue } from "../api/schema";
import { amount, grouped, short, told } from "../text/quantity";
import { rem } from "./rem";
import { useWidth } from "./width";

/** Sizes of text follow the browser's: rows are as high as so many of its root size, letters as wide. */
const ROW = 2.125;
const LETTER = 0.55;
const INDENT = 0.75;
/** Pixels: narrower ones could not be hit (WCAG 2.5.8): they are drawn, but are no links; the table has them. */
const LEAST = 26;

interface Node {
  queue: Queue;
  account: Account | undefined;
  children: Node[];
}

export type Measure = "used" | "guaranteed";

export function Icicle({ queues, resource, by }: { queues: readonly Queue[]; resource: string; by: Measure }) {
  const frame = useRef<HTMLDivElement>(null);
  const whole = useWidth(frame);
  const top = tree(queues, resource);
  if (!top) return null;
  // A parent is at least as wide as its children together, whatever rounding or a race makes of the figures.
  const free = by === "used" ? Math.max(0, amount(top.account?.guaranteed) - amount(top.account?.used)) : 0;
  const root = partition<Node>()(
    hierarchy(top).sum((node) => {
      if (node === top) return free;
      return node.children.length ? 0 : Math.max(0, amount(node.account?.[by]));
    }),
  );
  const shown = root.descendants().filter((node) => node.x1 > node.x0);
  return (
    <div ref={frame} className="icicle" style={{ height: `${(root.height + 1) * ROW}rem` }}>
      {shown.map(({ data, x0, x1, depth, value = 0 }) => {
        const borrowed = amount(data.account?.borrowed);
        const used = amount(data.account?.used);
        const name = data.queue.path.slice(data.queue.path.lastIndexOf(".") + 1);
        const words = `${data.queue.path}: ${data.account?.used ?? 0} ${short(resource)} used of ${data.account?.guaranteed ?? 0} guaranteed`;
        const width = x1 - x0;
        const letters = ((width * whole) / rem() - INDENT) / LETTER;
        const amountShown = figure(depth ? value : value - free, resource);
        const cell = {
          title: words,
          className: `icicle-cell ${borrowed > 0 ? "borrows" : ""} ${used === 0 ? "idle" : ""}`,
          style: {
            left: `${x0 * 100}%`,
            width: `${width * 100}%`,
            top: `${depth * ROW}rem`,
            height: `${ROW}rem`,
            // The borrowed part is hatched, at the end.
            backgroundSize: `${used > 0 ? (borrowed / used) * 100 : 0}% 100%`,
          },
        };
        if (width * whole < LEAST) return <i key={data.queue.path} aria-hidden="true" {...cell} />;
        return (
          <Link key={data.queue.path} to="/queues/$path" params={{ path: data.queue.path }} {...cell}>
            {letters > Math.min(name.length, 4) && name}{" "}
            {letters > name.length + amountShown.length && <small>{amountShown}</small>}
          </Link>
        );
      })}
    </div>
  );
}

function figure(value: number, resource: string): string {
  return resource === "memory" ? told(value, resource) : grouped(value);
}

function tree(queues: readonly Queue[], resource: string): Node | undefined {
  const nodes = new Map<string, Node>();
  for (const queue of queues) {
    const account = queue.accounts.find((each) => each.resource === resource && each.flavor === null);
    const node = { queue, account, children: [] };
    nodes.set(queue.path, node);
    if (queue.parent !== null) nodes.get(queue.parent)?.children.push(node);
  }
  return nodes.get("root");
}

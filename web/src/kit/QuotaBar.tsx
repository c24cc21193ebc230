/**
 * A queue's amounts on one scale. Own use is solid, what is borrowed hatched, what is lent dotted, pending demand
 * outlined beyond; a tick marks the guarantee, a bracket the limit. What is used of a resource that nobody is
 * guaranteed is neither own nor borrowed: pale, with an edge. Told apart without colour, too.
 */

import type { Account } from "../api/schema";
import { amount, short } from "../text/quantity";

const WIDTH = 400;
const HEIGHT = 16;
/** What waits beyond all that is held is drawn as this part of it at most. */
const BACKLOG = 0.25;
/** A little beyond the end, so that what is cut off has no edge there. */
const OFF = WIDTH + 4;

export interface Amounts {
  used: number;
  borrowed: number;
  lent: number;
  pending: number;
  guaranteed: number;
  limit: number | null;
}

export function amounts(account: Account): Amounts {
  return {
    used: amount(account.used),
    borrowed: amount(account.borrowed),
    lent: amount(account.lent),
    pending: amount(account.pending),
    guaranteed: amount(account.guaranteed),
    limit: account.limit === null ? null : amount(account.limit),
  };
}

/** The length that shows all that is held, and as much of what waits as leaves it readable: a backlog runs off the end. */
export function reach(of: Amounts): number {
  const used = Math.max(of.used, of.guaranteed);
  const held = Math.max(used, of.limit ?? 0);
  return Math.max(held, Math.min(used + of.pending, held * (1 + BACKLOG) || of.pending));
}

export interface Piece {
  kind: "own" | "plain" | "borrowed" | "lent" | "pending";
  from: number;
  to: number;
}

/** The pieces of a bar, in amounts. What is lent lies at the end of the unused guarantee. */
export function pieces(of: Amounts): Piece[] {
  const own = of.used - of.borrowed;
  const lentFrom = Math.max(own, of.guaranteed - of.lent);
  const all: Piece[] = [
    { kind: of.guaranteed > 0 || of.borrowed > 0 ? "own" : "plain", from: 0, to: own },
    { kind: "borrowed", from: own, to: of.used },
    { kind: "lent", from: lentFrom, to: Math.max(lentFrom, of.guaranteed) },
  ];
  const end = Math.max(of.used, of.guaranteed);
  if (of.lent === 0) all[2] = { kind: "lent", from: 0, to: 0 };
  all.push({ kind: "pending", from: end, to: end + of.pending });
  return all.filter((piece) => piece.to > piece.from);
}

export function QuotaBar({ account, scale }: { account: Account; scale?: number }) {
  const of = amounts(account);
  const whole = scale ?? reach(of);
  const x = (value: number) => (whole > 0 ? Math.min(OFF, (value / whole) * WIDTH) : 0);
  const name = short(account.resource);
  const limit = account.limit === null ? "" : `, limit ${account.limit}`;
  const words =
    `${account.used} ${name} used of ${account.guaranteed} guaranteed${limit}; ` +
    `${account.borrowed} borrowed, ${account.lent} lent, ${account.pending} pending`;
  return (
    <svg className="bar" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={words}>
      <title>{words}</title>
      <rect className="bar-track" width={x(Math.max(of.guaranteed, of.used))} y="3" height="10" />
      {pieces(of).map(({ kind, from, to }) => (
        <rect
          key={kind}
          className={`bar-${kind}`}
          x={x(from)}
          width={Math.max(0, x(to) - x(from))}
          y={3}
          height={10}
          {...(kind === "borrowed" && { fill: "url(#hatch)", className: "" })}
          {...(kind === "lent" && { fill: "url(#dots)", className: "" })}
        />
      ))}
      {of.guaranteed > 0 && <rect className="bar-tick" x={x(of.guaranteed) - 2} y="0" width="2" height={HEIGHT} />}
      {of.limit !== null && of.limit > 0 && (
        <path className="bar-bracket" d={`M${x(of.limit) - 5} 0.5H${x(of.limit)}V${HEIGHT - 0.5}H${x(of.limit) - 5}`} />
      )}
    </svg>
  );
}

/** The textures of all bars of a page: once, not in each. */
export function Textures() {
  return (
    <svg className="visually-hidden" aria-hidden="true">
      <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="6" height="6" className="bar-borrowed" />
        <rect width="2" height="6" className="bar-gap" />
      </pattern>
      <pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">
        <circle cx="3" cy="3" r="1.7" className="bar-lent" />
      </pattern>
    </svg>
  );
}

/** What the parts of a bar mean. */
export function BarLegend() {
  return (
    <p className="legend" aria-hidden="true">
      <i className="key key-own" /> own <i className="key key-plain" /> used, none guaranteed{" "}
      <i className="key key-borrowed" /> borrowed <i className="key key-lent" /> lent <i className="key key-pending" />{" "}
      pending <i className="key key-guaranteed" /> guaranteed <i className="key key-limit" /> limit
    </p>
  );
}

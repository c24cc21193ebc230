/** A state, verdict or severity: always the word, with a shape and a colour beside it. */

import type { ReactNode } from "react";

const SHAPES: Record<string, string> = {
  CHANGE: "✎",
  ESCALATE: "▲",
  WAIT: "◷",
  HELD: "‖",
  Queued: "◷",
  Held: "‖",
  Admitted: "◇",
  Placing: "◈",
  Running: "●",
  Evicting: "↩",
  Succeeded: "✓",
  Failed: "✕",
  critical: "▲",
  warning: "!",
  info: "i",
  held: "‖",
  draining: "⇣",
  starved: "!",
};

export function Chip({ word, label = word }: { word: string; label?: ReactNode }) {
  return (
    <span className={`chip chip-${word.toLowerCase()}`}>
      {SHAPES[word] && <span aria-hidden="true">{SHAPES[word]} </span>}
      {label}
    </span>
  );
}

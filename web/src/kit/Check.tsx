import type { ReactNode } from "react";

interface Props {
  on: boolean;
  set: (on: boolean) => void;
  children: ReactNode;
}

/** A box to tick, and its words. */
export function Check({ on, set, children }: Props) {
  return (
    <label>
      <input type="checkbox" checked={on} onChange={(event) => set(event.target.checked)} /> {children}
    </label>
  );
}

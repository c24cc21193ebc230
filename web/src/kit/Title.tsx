/** The heading of a screen. Whoever has come from another screen finds the focus here, and reads on from it. */

import { useRouterState } from "@tanstack/react-router";
import { type ReactNode, useEffect, useRef } from "react";

/** The address that has the focus: a page that was just loaded leaves it where the browser puts it. */
let arrived = window.location.pathname;

/** `hidden`: where the screen's first panel says the same to the eye. */
export function Title({ hidden = false, children }: { hidden?: boolean; children: ReactNode }) {
  const heading = useRef<HTMLHeadingElement>(null);
  // Of what is shown, not of where one is going: the screen that is left must not take it.
  const path = useRouterState({ select: (state) => state.matches.at(-1)?.pathname ?? arrived });
  useEffect(() => {
    if (path === arrived) return;
    arrived = path;
    heading.current?.focus({ preventScroll: true });
  }, [path]);
  return (
    <h1 ref={heading} tabIndex={-1} className={hidden ? "visually-hidden" : undefined}>
      {children}
    </h1>
  );
}

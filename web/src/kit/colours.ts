/** Colours of the page for what CSS does not paint: canvases, and charts drawn on them. */

import { useEffect, useState } from "react";

/** Answers what a colour of CSS, such as `var(--own)`, is where `element` is. A property alone may depend on the theme. */
export function coloursAt(element: HTMLElement): (colour: string) => string {
  const style = getComputedStyle(element);
  const found = new Map<string, string>();
  return (colour) => {
    const known = found.get(colour);
    if (known !== undefined) return known;
    const before = element.style.outlineColor;
    element.style.outlineColor = colour;
    const computed = style.outlineColor;
    element.style.outlineColor = before;
    found.set(colour, computed);
    return computed;
  };
}

/** Changes when the page's colours do: a canvas does not by itself. */
export function useTheme(): number {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const changed = () => setTurn((old) => old + 1);
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const chosen = new MutationObserver(changed);
    system.addEventListener("change", changed);
    chosen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      system.removeEventListener("change", changed);
      chosen.disconnect();
    };
  }, []);
  return turn;
}

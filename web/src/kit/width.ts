import { type RefObject, useEffect, useState } from "react";

/** How wide an element is, in CSS pixels; 0 until it is there. */
export function useWidth(frame: RefObject<HTMLElement | null>): number {
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

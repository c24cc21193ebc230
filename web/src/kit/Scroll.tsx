import { type ReactNode, useEffect, useRef, useState } from "react";

interface Props {
  label: string;
  className?: string;
  children: ReactNode;
}

/** A frame that scrolls where its content is larger. Then the keyboard reaches it, too. */
export function Scroll({ label, className = "wide", children }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [over, setOver] = useState(false);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const measure = () =>
      setOver(element.scrollWidth > element.clientWidth || element.scrollHeight > element.clientHeight);
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    for (const child of element.children) watch.observe(child);
    return () => watch.disconnect();
  }, []);
  return (
    <div ref={frame} className={className} {...(over && { tabIndex: 0, role: "region", "aria-label": label })}>
      {children}
    </div>
  );
}

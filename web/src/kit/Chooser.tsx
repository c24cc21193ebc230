import { type ReactNode, useRef } from "react";

interface Props {
  title: string;
  /** Names what opens. */
  label: string;
  className?: string;
  children: ReactNode;
}

/** A word that opens a small sheet over the page. It closes with Escape, and when the focus leaves it. */
export function Chooser({ title, label, className = "", children }: Props) {
  const element = useRef<HTMLDetailsElement>(null);
  const close = () => {
    if (element.current) element.current.open = false;
  };
  return (
    <details
      ref={element}
      className={`chooser ${className}`}
      onBlur={(event) => {
        if (event.relatedTarget && !event.currentTarget.contains(event.relatedTarget)) close();
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !element.current?.open) return;
        close();
        element.current.querySelector("summary")?.focus();
      }}
    >
      <summary>{title}</summary>
      {/* It takes the focus of a click between its fields, which would close it else. */}
      <div role="group" aria-label={label} tabIndex={-1}>
        {children}
      </div>
    </details>
  );
}

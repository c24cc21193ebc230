import type { ReactNode } from "react";

/** Parts of a screen of which one is shown; which one is in the address. */
export function Tabs<Name extends string>({
  label,
  names,
  chosen,
  choose,
  children,
}: {
  label: string;
  names: readonly Name[];
  chosen: Name;
  choose: (name: Name) => void;
  children: ReactNode;
}) {
  const step = (by: number) => {
    const next = names[(names.indexOf(chosen) + by + names.length) % names.length];
    if (next !== undefined) choose(next);
  };
  return (
    <section className="panel">
      <div
        role="tablist"
        aria-label={label}
        className="tabs"
        onKeyDown={(event) => {
          if (event.key === "ArrowRight") step(1);
          else if (event.key === "ArrowLeft") step(-1);
        }}
      >
        {names.map((name) => (
          <button
            key={name}
            type="button"
            role="tab"
            id={`tab-${name}`}
            aria-selected={name === chosen}
            aria-controls="tab-panel"
            tabIndex={name === chosen ? 0 : -1}
            ref={(element) => {
              if (name === chosen && element?.parentElement?.contains(document.activeElement)) element.focus();
            }}
            onClick={() => choose(name)}
          >
            {name}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${chosen}`}>
        {children}
      </div>
    </section>
  );
}

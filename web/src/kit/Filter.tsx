/** A field of the address that narrows a list: written as one types, asked for when the hand rests. */

import { useEffect, useId, useState } from "react";
import { focusRows } from "./Table";

const REST_MS = 300;

interface Props {
  label: string;
  value: string;
  set: (value: string) => void;
  search?: boolean;
  hint?: string;
  /** What is known of what it may be. */
  options?: readonly string[];
  width?: string;
}

export function Filter({ label, value, set, search = false, hint = "", options = [], width = "22ch" }: Props) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => {
    if (typed === value) return;
    const timer = setTimeout(() => set(typed.trim()), REST_MS);
    return () => clearTimeout(timer);
  });
  const list = useId();
  return (
    <>
      <input
        type="search"
        aria-label={label}
        placeholder={label}
        title={hint || undefined}
        value={typed}
        style={{ width }}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          // What is written is taken back first; then the field is left, for the rows if there are any.
          if (event.key === "Enter" || (event.key === "Escape" && typed === "")) rowsOr(event.currentTarget);
        }}
        {...(options.length > 0 && { list })}
        {...(search && { "data-search": "" })}
      />
      {options.length > 0 && (
        <datalist id={list}>
          {options.map((option) => (
            <option key={option} value={option} />
          ))}
        </datalist>
      )}
    </>
  );
}

function rowsOr(field: HTMLElement) {
  if (!focusRows()) field.blur();
}

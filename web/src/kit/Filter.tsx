/** A field of the address that narrows a list: written as one types, asked for when the hand rests. */

import { useEffect, useState } from "react";

const REST_MS = 300;

interface Props {
  label: string;
  value: string;
  set: (value: string) => void;
  search?: boolean;
  width?: string;
}

export function Filter({ label, value, set, search = false, width = "22ch" }: Props) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => {
    if (typed === value) return;
    const timer = setTimeout(() => set(typed.trim()), REST_MS);
    return () => clearTimeout(timer);
  });
  return (
    <input
      type="search"
      aria-label={label}
      placeholder={label}
      value={typed}
      style={{ width }}
      onChange={(event) => setTyped(event.target.value)}
      {...(search && { "data-search": "" })}
    />
  );
}

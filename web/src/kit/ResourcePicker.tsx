import { short } from "../text/quantity";

interface Props {
  names: readonly string[];
  chosen: string | undefined;
  /** What the address asks for in vain. */
  unknown?: string | undefined;
  choose: (name: string) => void;
}

export function ResourcePicker({ names, chosen, unknown, choose }: Props) {
  if (chosen === undefined) return null;
  return (
    <>
      {unknown !== undefined && <span role="status">No resource here is called {unknown}.</span>}
      <label className="picker">
        resource{" "}
        <select value={chosen} onChange={(event) => choose(event.target.value)}>
          {[...new Set([...names, chosen])].map((name) => (
            <option key={name} value={name}>
              {short(name)}
            </option>
          ))}
        </select>
      </label>
    </>
  );
}

import { short } from "../text/quantity";

/** The resource that is shown when nobody has chosen: a device if there is one. */
export function mainResource(names: readonly string[]): string {
  return names.find((name) => name.includes("/")) ?? names[0] ?? "cpu";
}

export function ResourcePicker({
  names,
  chosen,
  choose,
}: {
  names: readonly string[];
  chosen: string;
  choose: (name: string) => void;
}) {
  return (
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
  );
}

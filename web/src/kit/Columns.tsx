import type { Column } from "./Table";

interface Props<Row> {
  all: readonly Column<Row>[];
  /** Ids of those that are shown. */
  shown: ReadonlySet<string>;
  show: (ids: readonly string[]) => void;
}

/** Which columns a list has. */
export function Columns<Row>({ all, shown, show }: Props<Row>) {
  const toggle = (id: string) =>
    show(all.map((column) => column.id).filter((each) => (each === id ? !shown.has(id) : shown.has(each))));
  return (
    <details className="chooser">
      <summary>columns</summary>
      <div role="group" aria-label="Columns">
        {all.map(({ id, title }) => (
          <label key={id}>
            <input type="checkbox" checked={shown.has(id)} onChange={() => toggle(id)} /> {title}
          </label>
        ))}
      </div>
    </details>
  );
}

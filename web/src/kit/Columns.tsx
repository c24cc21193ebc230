import { Check } from "./Check";
import { Chooser } from "./Chooser";
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
    <Chooser title="columns" label="Columns">
      {all.map(({ id, title }) => (
        <Check key={id} on={shown.has(id)} set={() => toggle(id)}>
          {title}
        </Check>
      ))}
    </Chooser>
  );
}

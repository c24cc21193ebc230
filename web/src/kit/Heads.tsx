interface Props {
  titles: readonly string[];
  /** Those of the titles that stand above numbers. */
  numbers?: readonly string[];
}

/** The heads of a table's columns. */
export function Heads({ titles, numbers = [] }: Props) {
  return (
    <thead>
      <tr>
        {titles.map((title) => (
          <th key={title} scope="col" className={numbers.includes(title) ? "number" : undefined}>
            {title}
          </th>
        ))}
      </tr>
    </thead>
  );
}

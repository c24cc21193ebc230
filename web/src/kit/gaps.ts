type Row = (number | null)[];

/**
 * Each moment lasts its step, but not beyond the `end`; between it and a later one of which nothing was recorded there is nothing. `once`: values
 * of the moments alone, which do not last.
 */
export function withGaps(
  moments: readonly number[],
  lasting: readonly (readonly number[])[],
  once: readonly (readonly number[])[],
  step: number,
  end = Infinity,
): { times: number[]; rows: Row[] } {
  const values = [...lasting, ...once];
  const times: number[] = [];
  const rows: Row[] = values.map(() => []);
  moments.forEach((moment, at) => {
    times.push(moment);
    rows.forEach((row, line) => row.push(values[line]?.[at] ?? null));
    const next = moments[at + 1];
    if (next !== undefined && next - moment < 1.5 * step) return;
    times.push(next === undefined ? Math.max(moment, Math.min(moment + step, end)) : moment + step);
    rows.forEach((row, line) => row.push(lasting[line]?.[at] ?? null));
    if (next === undefined) return;
    times.push(moment + step + 1);
    rows.forEach((row) => row.push(null));
  });
  return { times, rows };
}

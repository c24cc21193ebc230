/** A queue's path where room is short: its end names the queue, so it is cut at its start. The whole is its title. */

export function Path({ of }: { of: string }) {
  const dot = of.lastIndexOf(".");
  return (
    <span className="path" title={of}>
      <span className="path-above">{of.slice(0, dot + 1)}</span>
      <span className="path-name">{of.slice(dot + 1)}</span>
    </span>
  );
}

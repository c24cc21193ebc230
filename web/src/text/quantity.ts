/** Kubernetes quantities as numbers, for lengths and sums. What is shown as text is the server's own words. */

const FACTORS: Record<string, number> = {
  "": 1,
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};
const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const FORM = /^(-?[0-9.]+(?:[eE]-?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?$/;

/** The amount in base units; null, absent or unreadable: 0. */
export function amount(text: string | null | undefined): number {
  const match = FORM.exec(text ?? "");
  if (!match) return 0;
  return Number(match[1]) * (FACTORS[match[2] ?? ""] ?? 1);
}

/** `gpu` of `nvidia.com/gpu`. */
export function short(resource: string): string {
  return resource.slice(resource.lastIndexOf("/") + 1);
}

/** A sum or difference as text: memory in the largest binary unit that keeps three digits, all else as a count. */
export function told(value: number, resource: string): string {
  if (resource !== "memory" && resource !== "ephemeral-storage") return grouped(value);
  let power = 0;
  while (Math.abs(value) >= 1024 && power < BINARY.length - 1) {
    value /= 1024;
    power += 1;
  }
  return `${round(value)}${BINARY[power] ?? ""}`;
}

/** `1 200`, with narrow spaces that do not break. */
export function grouped(value: number): string {
  return round(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

function round(value: number): string {
  return String(Math.abs(value) >= 100 ? Math.round(value) : Math.round(value * 10) / 10);
}

/** `8 gpu, 64 cpu`: devices first, then cpu; memory, storage and pods only where nothing else is asked for. */
export function demand(amounts: Record<string, string>): string {
  const names = Object.keys(amounts);
  const plain = new Set(["memory", "ephemeral-storage", "pods"]);
  const shown = names.filter((name) => !plain.has(name));
  return (shown.length ? shown : names)
    .sort((a, b) => Number(b.includes("/")) - Number(a.includes("/")) || a.localeCompare(b))
    .map((name) => `${amounts[name]} ${short(name)}`)
    .join(", ");
}

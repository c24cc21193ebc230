/** Kubernetes quantities as numbers, for lengths and sums, and amounts as people read them. */

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

/** A number of base units as people read it, `160 TiB` or `15,360`: the server has the same rule (amounts.json). */
export function told(value: number, resource: string): string {
  const plain = resource.replace(/^limits\./, "");
  if (plain === "cpu" && value !== 0 && Math.abs(value) < 1) return `${Math.round(value * 1000)}m`;
  if (!/^(memory|ephemeral-storage)$|^hugepages-/.test(plain)) return grouped(value);
  let power = 0;
  while (Math.abs(value) >= 1024 && power < BINARY.length - 1) {
    value /= 1024;
    power += 1;
  }
  return grouped(value) + (power > 0 ? ` ${BINARY[power]}B` : "");
}

/** The same of an amount as the server writes it; a dash for none. */
export function read(text: string | null | undefined, resource: string): string {
  return text == null ? "–" : told(amount(text), resource);
}

/** Four digits or more, without noughts at the end of a fraction; separators from five whole digits on. */
export function grouped(value: number): string {
  const scale = Math.abs(value) >= 100 ? 10 : Math.abs(value) >= 10 ? 100 : 1000;
  const near = Math.floor(value * scale + 0.5) / scale;
  return Math.abs(near) >= 10_000 ? String(near).replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, ",") : String(near);
}

/** `8 gpu, 64 cpu`: devices first, then cpu; memory, storage and pods only where nothing else is asked for; `–` of nothing. */
export function demand(amounts: Record<string, string>): string {
  const names = Object.keys(amounts);
  if (!names.length) return "–";
  const plain = new Set(["memory", "ephemeral-storage", "pods"]);
  const devices = names.filter((name) => !plain.has(name));
  const shown = devices.length ? devices : names;
  const ends = shown.map(short);
  const named = (name: string) => (ends.filter((end) => end === short(name)).length > 1 ? name : short(name));
  return shown
    .sort((a, b) => Number(b.includes("/")) - Number(a.includes("/")) || a.localeCompare(b))
    .map((name) => `${told(amount(amounts[name]), name)} ${named(name)}`)
    .join(", ");
}

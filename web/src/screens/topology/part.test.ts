import { expect, it } from "vitest";
import type { Host } from "./layout";
import { MOST_DRAWN, part } from "./part";

const none = { find: "", job: new Set<string>(), fits: new Set<string>() };
const hosts: Host[] = Array.from({ length: 2 * (MOST_DRAWN + 1) }, (_, number) => ({
  name: `n${number}`,
  inside: `b${number % 4}/r${number >> 1}`,
  used: 8,
  reserved: 0,
  free: 0,
  whole: 8,
  heldFor: [],
  out: "",
}));

it("draws all of as many domains as can be searched by eye", () => {
  expect(part(hosts, 1, none)).toEqual({ hosts, shown: 4, all: 4 });
});

it("draws of more only the domains of what is looked for, whole", () => {
  expect(part(hosts, 2, none)).toMatchObject({ hosts: [], shown: 0 });
  const found = part(hosts, 0, { ...none, find: "n40" });
  expect(found.hosts.map((host) => host.name)).toEqual(["n40", "n400", "n401"]);
  expect(part(hosts, 2, { ...none, job: new Set(["n5"]) })).toMatchObject({ shown: 1 });
  expect(part(hosts, 2, { ...none, fits: new Set(["b1/r2"]) }).hosts.map((host) => host.name)).toEqual(["n5"]);
});

it("draws no more than that many however many match", () => {
  expect(part(hosts, 0, { ...none, find: "n" }).shown).toBe(MOST_DRAWN);
});

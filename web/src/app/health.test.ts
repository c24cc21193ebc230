import { expect, it } from "vitest";
import { Failure } from "../api/client";
import { type Seen, health } from "./health";

const now = new Date("2026-03-04T14:07:31Z");
const LEADING = { state: "leading", at: now.toISOString(), cycle: 7, cycleAgeSeconds: 1, waiting: 0, text: "it leads" };
const well = {
  link: "live",
  loggedIn: true,
  since: now,
  controller: LEADING,
  error: null,
  answered: now,
} as unknown as Seen;
const lamp = (change: object) => {
  const [worst] = health({ ...well, ...change } as Seen, now);
  return [worst?.level, worst?.word];
};

it("is live only where the stream, the login, the server and the controller all are", () => {
  expect(lamp({})).toEqual(["good", "live"]);
  expect(lamp({ link: "lost" })).toEqual(["wait", "reconnecting, 0 s"]);
  expect(lamp({ link: "ended" })).toEqual(["bad", "not logged in"]);
  expect(lamp({ loggedIn: false })).toEqual(["bad", "not logged in"]);
  for (const state of ["stale", "never"])
    expect(lamp({ controller: { ...LEADING, state } })).toEqual(["bad", "nobody decides"]);
  expect(lamp({ controller: { ...LEADING, state: "away" } })).toEqual(["bad", "no Kubernetes"]);
});

it("tells a server that is silent from one without its database, and faults and a refused login from both", () => {
  const failed = (status: number, code: string) => ({ error: new Failure("", "so it is", status, code, null) });
  expect(lamp(failed(0, "unreachable"))).toEqual(["bad", "no server"]);
  expect(lamp(failed(502, "unexpected"))).toEqual(["bad", "no server"]);
  expect(lamp(failed(503, "database_unavailable"))).toEqual(["bad", "no database"]);
  expect(lamp(failed(503, "unavailable"))).toEqual(["bad", "fault"]);
  expect(lamp(failed(500, "internal"))).toEqual(["bad", "fault"]);
  expect(lamp({ ...failed(401, "unauthenticated"), loggedIn: false })).toEqual(["bad", "not logged in"]);
});

it("calls nothing well that nobody can know", () => {
  const levels = (change: object) =>
    Object.fromEntries(health({ ...well, ...change } as Seen, now).map((part) => [part.name, part.level]));
  const good = { login: "good", "server and database": "good", controller: "good", "live updates": "good" };
  expect(levels({})).toEqual(good);
  for (const code of ["unreachable", "database_unavailable"])
    expect(levels({ error: new Failure("", "so it is", 503, code, null) })).toEqual({
      ...good,
      "server and database": "bad",
      controller: "wait",
    });
  expect(levels({ controller: undefined, link: "connecting" })).toEqual({
    ...good,
    controller: "wait",
    "live updates": "wait",
  });
  expect(levels({ link: "ended" })).toEqual({ ...good, login: "bad", "live updates": "wait" });
});

import { expect, it } from "vitest";
import { RANGES, asShown, momentAt, rangeOf, stepsBack } from "./past";

const now = new Date("2026-03-04T14:07:31Z");
const [day, month] = [RANGES[0]!, RANGES[1]!];

it("goes back in steps of five minutes, or of hours, and 0 is now", () => {
  expect(momentAt(0, day, now)).toBeUndefined();
  expect(momentAt(1, day, now)).toBe("2026-03-04T14:02:00Z");
  expect(momentAt(24, month, now)).toBe("2026-03-03T14:07:00Z");
});

it("finds the step of a moment again", () => {
  for (const back of [1, 7, 288]) expect(stepsBack(momentAt(back, day, now), day, now)).toBe(back);
  expect(stepsBack(undefined, day, now)).toBe(0);
});

it("takes the shortest range that reaches back to a moment", () => {
  expect(rangeOf(undefined, now)).toBe(day);
  expect(rangeOf("2026-03-04T02:00:00Z", now)).toBe(day);
  expect(rangeOf("2026-03-01T02:00:00Z", now)).toBe(month);
  expect(rangeOf("2020-03-01T02:00:00Z", now)).toBe(month);
});

it("shows a queue of the past below its parent, and claims nothing that was not written down", () => {
  const item = { path: "root.a", pendingWorkloads: 2, admittedWorkloads: 1, accounts: [] };
  const tree = { asked: "", at: "", stepSeconds: 60, items: [item, { ...item, path: "root" }] };
  expect(asShown(tree).map(({ path, parent, oldestPending }) => [path, parent, oldestPending])).toEqual([
    ["root.a", "root", null],
    ["root", null, null],
  ]);
});

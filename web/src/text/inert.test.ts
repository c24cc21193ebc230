import { expect, test } from "vitest";
import { inert } from "./inert";

test("text of others neither hides nor turns what stands beside it", () => {
  const told = { name: "red\u001b[31m", rows: [{ "le\u202evel": "ra\u2066ck\u0000" }], pods: 8, none: null };
  expect(inert(told)).toEqual({
    name: "red\ufffd[31m",
    rows: [{ "le\ufffdvel": "ra\ufffdck\ufffd" }],
    pods: 8,
    none: null,
  });
});

test("a moment of a sentence is told in the reader's own zone, a field that is one stays", () => {
  const at = "2020-11-24T18:43:07Z";
  const own = new Date(at).toLocaleTimeString([], { hour12: false });
  expect(inert("nobody decides since 2020-11-24 18:43:07 UTC: nothing starts")).toContain(`${own}: nothing starts`);
  expect(inert(at)).toBe(at);
  for (const quoted of ["2026-02-30 00:00:00 UTC", "2026-13-40 00:00:00 UTC"]) expect(inert(quoted)).toBe(quoted);
});

test("other scripts, and lines, are left as they are", () => {
  const told = "שלום 你好 é\n\tnext";
  expect(inert(told)).toBe(told);
});

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

test("other scripts, and lines, are left as they are", () => {
  const told = "שלום 你好 é\n\tnext";
  expect(inert(told)).toBe(told);
});

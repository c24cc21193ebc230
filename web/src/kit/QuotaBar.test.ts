import { expect, it } from "vitest";
import { pieces, reach } from "./QuotaBar";

const of = { used: 0, borrowed: 0, lent: 0, pending: 0, guaranteed: 0, limit: null };

it("lays borrowed use behind own use", () => {
  expect(pieces({ ...of, used: 96, borrowed: 64, guaranteed: 32 })).toEqual([
    { kind: "own", from: 0, to: 32 },
    { kind: "borrowed", from: 32, to: 96 },
  ]);
});

it("lays what is lent at the end of the unused guarantee, and pending demand beyond it", () => {
  expect(pieces({ ...of, used: 48, lent: 16, pending: 8, guaranteed: 64 })).toEqual([
    { kind: "own", from: 0, to: 48 },
    { kind: "lent", from: 48, to: 64 },
    { kind: "pending", from: 64, to: 72 },
  ]);
});

it("calls nothing own of what nobody is guaranteed", () => {
  expect(pieces({ ...of, used: 9 })).toEqual([{ kind: "plain", from: 0, to: 9 }]);
});

it("reaches to what is furthest out", () => {
  expect(reach({ ...of, used: 10, pending: 5, guaranteed: 12, limit: 40 })).toBe(40);
});

it("lets a backlog run off the end rather than make all else a hair's breadth", () => {
  expect(reach({ ...of, used: 100, pending: 1000, guaranteed: 80 })).toBe(125);
  expect(reach({ ...of, pending: 7 })).toBe(7);
});

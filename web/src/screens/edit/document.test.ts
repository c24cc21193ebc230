import { describe, expect, it } from "vitest";
import {
  type Document,
  type Stated,
  changed,
  leftOut,
  merged,
  nothing,
  same,
  subject,
  withAmount,
  withMine,
} from "./document";

const tree = (queues: Record<string, Stated>): Document => ({
  apiVersion: "queuer.dev/v1",
  kind: "QueueTree",
  root: "root",
  queues,
});
const gpu = (guaranteed: string): Stated => ({ quota: [{ resource: "gpu", guaranteed }] });
const BASE = tree({ "root.a": { ...gpu("4"), weight: 1 }, "root.b": gpu("8") });

describe("what an edit sends", () => {
  it("is the queues that it changed, and nothing else", () => {
    const mine = withAmount(BASE, "root.a", 0, "limit", "6");
    expect(Object.keys(changed(BASE, mine).queues)).toEqual(["root.a"]);
    expect(changed(BASE, mine).queues["root.a"]?.quota?.[0]).toEqual({ resource: "gpu", guaranteed: "4", limit: "6" });
  });

  it("is nothing where the words only stand in another order", () => {
    const mine = tree({ "root.b": gpu("8"), "root.a": { weight: 1, ...gpu("4") } });
    expect(nothing(changed(BASE, mine))).toBe(true);
  });

  it("takes an emptied amount out of its row", () => {
    const mine = withAmount(BASE, "root.b", 0, "guaranteed", "");
    expect(mine.queues["root.b"]?.quota).toEqual([{ resource: "gpu" }]);
  });
});

describe("two people's edits", () => {
  it("come together where they touch different keys", () => {
    const mine = tree({ ...BASE.queues, "root.a": { ...gpu("5"), weight: 1 } });
    const theirs = tree({ ...BASE.queues, "root.a": { ...gpu("4"), weight: 3 }, "root.b": gpu("9") });
    const { document, clashes } = merged(BASE, mine, theirs);
    expect(clashes).toEqual([]);
    expect(document.queues).toEqual({ "root.a": { ...gpu("5"), weight: 3 }, "root.b": gpu("9") });
  });

  it("never overwrite the same key unseen", () => {
    const mine = tree({ ...BASE.queues, "root.b": gpu("10") });
    const theirs = tree({ ...BASE.queues, "root.b": gpu("12") });
    const { document, clashes } = merged(BASE, mine, theirs);
    expect(clashes.map(({ path, key }) => [path, key])).toEqual([["root.b", "quota"]]);
    expect(document.queues["root.b"]).toEqual(gpu("12"));
  });

  it("meet amount by amount, and mine is taken where I say so", () => {
    const mine = tree({ ...BASE.queues, "root.b": { quota: [{ resource: "gpu", guaranteed: "6", limit: "9" }] } });
    const theirs = tree({ ...BASE.queues, "root.b": { quota: [{ resource: "gpu", guaranteed: "7", lend: "2" }] } });
    const { document, clashes } = merged(BASE, mine, theirs);
    expect(document.queues["root.b"]?.quota).toEqual([{ resource: "gpu", guaranteed: "7", limit: "9", lend: "2" }]);
    expect(clashes.map(({ at, was, mine, theirs }) => [at?.field, was, theirs, mine])).toEqual([
      ["guaranteed", "8", "7", "6"],
    ]);
    expect(withMine(document, clashes[0]!).queues["root.b"]?.quota?.[0]?.guaranteed).toBe("6");
  });

  it("are not put together where their rows differ", () => {
    const mine = tree({ ...BASE.queues, "root.b": { quota: [{ resource: "cpu", limit: "9" }] } });
    const { document, clashes } = merged(BASE, mine, tree({ ...BASE.queues, "root.b": gpu("7") }));
    expect(document.queues["root.b"]).toEqual(gpu("7"));
    expect(withMine(document, clashes[0]!).queues["root.b"]).toEqual(mine.queues["root.b"]);
  });

  it("agree where both wrote the same", () => {
    const both = tree({ ...BASE.queues, "root.b": gpu("10") });
    expect(merged(BASE, both, both).clashes).toEqual([]);
  });
});

it("keeps a change of flavors or topology, unless both made one", () => {
  const mine = { ...BASE, topology: { levels: ["rack"] } };
  expect(merged(BASE, mine, BASE)).toEqual({ document: mine, clashes: [] });
  const theirs = { ...BASE, topology: { levels: ["block"] } };
  const { document, clashes } = merged(BASE, mine, theirs);
  expect(document.topology).toEqual(theirs.topology);
  expect(clashes.map((clash) => clash.path)).toEqual(["topology"]);
});

it("knows which queues were taken out of the text", () => {
  expect(leftOut(BASE, tree({ "root.a": BASE.queues["root.a"]! }))).toEqual(["root.b"]);
});

it("tells lists in another order apart", () => {
  expect(same([1, 2], [2, 1])).toBe(false);
});

it("says of what a problem is, and no place in a list", () => {
  const told = (pointer: string) => subject({ field: "field", pointer });
  expect(told("/queues/root.a/quota/0/limit")).toBe("limit of root.a:");
  expect(told("/queues/root.a/quota")).toBe("quota of root.a:");
  expect(told("/queues/root.a/access/perUser/limits/nvidia.com~1gpu")).toBe(
    "access.perUser.limits.nvidia.com/gpu of root.a:",
  );
  expect(told("/queues/root.a")).toBe("root.a");
  expect(told("/topology/levels/0")).toBe("field");
});

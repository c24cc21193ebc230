import { describe, expect, it } from "vitest";
import type { Shown } from "../kit/past";
import { rows } from "./tree";

const queue = (path: string): Shown =>
  ({ path, parent: path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : null }) as Shown;
const QUEUES = ["root", "root.a", "root.a.x", "root.a.y", "root.b"].map(queue);
const paths = (found: { queue: Shown }[]) => found.map((row) => row.queue.path);

describe("rows of the tree", () => {
  it("come parents first, with their place among their siblings", () => {
    const found = rows(QUEUES, { closed: new Set(), find: "" });
    expect(paths(found)).toEqual(["root", "root.a", "root.a.x", "root.a.y", "root.b"]);
    expect(found.map((row) => [row.level, row.position, row.siblings])).toEqual([
      [1, 1, 1],
      [2, 1, 2],
      [3, 1, 2],
      [3, 2, 2],
      [2, 2, 2],
    ]);
  });

  it("leave out what is closed", () => {
    expect(paths(rows(QUEUES, { closed: new Set(["root.a"]), find: "" }))).toEqual(["root", "root.a", "root.b"]);
  });

  it("keep all that is above a match, also where it is closed", () => {
    expect(paths(rows(QUEUES, { closed: new Set(["root.a"]), find: "y" }))).toEqual(["root", "root.a", "root.a.y"]);
  });

  it("are none where nothing matches", () => {
    expect(rows(QUEUES, { closed: new Set(), find: "nowhere" })).toEqual([]);
  });
});

import { expect, it } from "vitest";
import { CELL, cellAt, growth, hosts, layout, next } from "./layout";

const all = hosts(
  Array.from({ length: 40 }, (_, number) => ({
    domain: `n${number}`,
    parent: `b${Math.floor(number / 16)}/r${Math.floor(number / 8)}`,
    cordoned: number === 3 ? 1 : 0,
    notReady: 0,
    allocatable: { gpu: "8" },
    used: { gpu: "4" },
    outside: { gpu: "1" },
    reserved: { gpu: "1" },
    free: { gpu: "2" },
    heldFor: [],
  })),
  "gpu",
);

it("makes a box of each domain of the level, with all its hosts in the order of their numbers", () => {
  const racks = layout(all, 2, 1000);
  expect(racks.boxes.map((box) => box.path)).toEqual(["b0/r0", "b0/r1", "b1/r2", "b1/r3", "b2/r4"]);
  expect(racks.boxes[1]?.cells.map((cell) => cell.host.name)).toEqual("n8 n9 n10 n11 n12 n13 n14 n15".split(" "));
  expect(layout(all, 1, 1000).boxes.map((box) => box.cells.length)).toEqual([16, 16, 8]);
  expect(all[3]).toMatchObject({ used: 5, reserved: 1, free: 2, whole: 8, out: "cordoned" });
});

it("draws boxes of one row as large as the width lets them, and those of several as they are", () => {
  const { boxes } = layout(all, 2, 1000);
  const used = boxes.at(-1)!.x + boxes.at(-1)!.width;
  expect(growth(layout(all, 2, 1.2 * used), 1.2 * used)).toBeCloseTo(1.2);
  expect(growth(layout(all, 2, 9 * used), 9 * used)).toBe(1.5);
  expect(growth(layout(all, 2, used - 1), used - 1)).toBe(1);
});

it("keeps every box inside the width, and none upon another", () => {
  const { boxes, height } = layout(all, 2, 200);
  for (const box of boxes) {
    expect(box.x + box.width).toBeLessThanOrEqual(200);
    expect(box.y + box.height).toBeLessThanOrEqual(height);
  }
  expect(new Set(boxes.map((box) => `${box.x} ${box.y}`)).size).toBe(boxes.length);
});

it("finds the host at a point, and none beside", () => {
  const found = layout(all, 2, 1000);
  const cell = found.boxes[2]!.cells[5]!;
  expect(cellAt(found, cell.x + 1, cell.y + CELL.height - 1)?.host.name).toBe("n21");
  expect(cellAt(found, -5, -5)).toBeUndefined();
});

it("walks from host to host, across boxes, and stays where there is no further one", () => {
  const { boxes } = layout(all, 2, 1000);
  const cells = boxes.flatMap((box) => box.cells);
  const first = cells[0]!;
  expect(next(cells, first, "ArrowRight").host.name).toBe("n1");
  expect(next(cells, next(cells, first, "ArrowRight"), "ArrowRight").host.name).toBe("n8");
  expect(next(cells, first, "ArrowDown").host.name).toBe("n2");
  expect(next(cells, first, "ArrowUp")).toBe(first);
});

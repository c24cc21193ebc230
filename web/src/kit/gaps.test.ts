import { expect, it } from "vitest";
import { withGaps } from "./gaps";

it("draws nothing where nothing was recorded, and each moment for as long as it lasts", () => {
  const { times, rows } = withGaps([0, 300, 1200], [[1, 2, 3]], [[7, 8, 9]], 300);
  expect(times).toEqual([0, 300, 600, 601, 1200, 1500]);
  expect(rows).toEqual([
    [1, 2, 2, null, 3, 3],
    [7, 8, null, null, 9, null],
  ]);
});

it("does not run into the future", () => {
  expect(withGaps([0, 300], [[1, 2]], [], 300, 420).times).toEqual([0, 300, 420]);
});

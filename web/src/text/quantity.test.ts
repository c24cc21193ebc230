import { expect, it } from "vitest";
import { amount, demand, grouped, told } from "./quantity";

it.each([
  ["64", 64],
  ["500m", 0.5],
  ["256Gi", 256 * 2 ** 30],
  ["1.5k", 1500],
  ["1e3", 1000],
  ["-8", -8],
  ["<b>", 0],
  [null, 0],
])("reads %s as %d", (text, value) => {
  expect(amount(text)).toBe(value);
});

it("tells memory in binary units, and everything else as a count", () => {
  expect(told(2048 * 2 ** 30, "memory")).toBe("2Ti");
  expect(told(1280, "nvidia.com/gpu")).toBe("1\u202f280");
  expect(grouped(0.25)).toBe("0.3");
});

it("names devices first, and pods only where nothing else is asked for", () => {
  expect(demand({ cpu: "32", memory: "1Ti", "nvidia.com/gpu": "8", pods: "1" })).toBe("8 gpu, 32 cpu");
  expect(demand({ pods: "3" })).toBe("3 pods");
});

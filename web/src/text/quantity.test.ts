import { expect, it } from "vitest";
import amounts from "./amounts.json";
import { amount, demand, told } from "./quantity";

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

it.each(amounts)("tells an amount as the server does: %s %s as %s", (resource, quantity, said) => {
  expect(told(amount(quantity), resource ?? "")).toBe(said);
});

it("names devices first, and pods only where nothing else is asked for", () => {
  expect(demand({ cpu: "32", memory: "1Ti", "nvidia.com/gpu": "8", pods: "1" })).toBe("8 gpu, 32 cpu");
  expect(demand({ pods: "3" })).toBe("3 pods");
  expect(demand({}), "of a job that cannot be read").toBe("–");
  expect(demand({ "nvidia.com/gpu": "8", "amd.com/gpu": "4" })).toBe("4 amd.com/gpu, 8 nvidia.com/gpu");
});

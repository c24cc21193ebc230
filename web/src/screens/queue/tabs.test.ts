import { expect, it } from "vitest";
import { causeTab, tabsFor } from "./tabs";

it("leads every reader to a tab that it has", () => {
  for (const me of [{ readsAudit: true }, { readsAudit: false }, undefined])
    expect(tabsFor(me)).toContain(causeTab(me));
  expect(causeTab({ readsAudit: true })).toBe("Changes");
});

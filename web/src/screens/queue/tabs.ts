/** The tabs of a queue's page. A reader has those that it may read. */

import type { Me } from "../../api/schema";

const TABS = ["Pending", "Running", "History", "Policy", "Changes"] as const;
export type Tab = (typeof TABS)[number];

type Reader = Pick<Me, "readsAudit"> | undefined;

export const tabsFor = (me: Reader): readonly Tab[] => TABS.filter((each) => each !== "Changes" || me?.readsAudit);

/** Where to read why a queue is held or over its limit: what was changed, else its rules. */
export const causeTab = (me: Reader): Tab => (me?.readsAudit ? "Changes" : "Policy");

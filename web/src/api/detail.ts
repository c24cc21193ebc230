/** What `detail` of an explanation holds. Which parts are there depends on the reason; moments are Unix seconds. */

export interface Detail {
  need?: { podset: string; count: number; per: Record<string, string>; level?: string }[];
  available?: {
    flavor: string;
    free: Record<string, string>;
    headroom: ({ queue: string } & Record<string, string>)[];
  }[];
  excluded?: {
    nodes: number;
    of: number;
    by: { why: string; nodes: number }[];
    domains?: { level: string; short: number; of: number };
  };
  holders?: { queue?: string; resource?: string; amount?: string; namespace?: string; name?: string; uid?: string }[];
  reservation?: { start: number; expires: number; hosts: string[] };
  ahead?: { gangs: number; of: number };
  estimate?: {
    from: number;
    likely: number | null;
    to: number | null;
    basis?: string;
    hitRate?: number | null;
    n?: number;
  };
  evicted?: { at: number; cause: string; note?: string; reclaimAt?: string };
}

export interface Change {
  change: string;
  evictions: number;
}

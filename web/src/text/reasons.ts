/** Tokens of jobs that can never start as they are. */
export const HOPELESS = "Misconfigured,NoMatchingFlavor,ExceedsMaxQuota";

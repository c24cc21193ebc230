"""Trees of other queueing systems as QueueTree documents: pure mappings, with a list of what has no equal."""

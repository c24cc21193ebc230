"""Keys of the advisory locks, so that no two uses share one. Arbitrary, but fixed for ever."""

LEADER = 7_831_000_001
"""Held by the one controller that decides, for its session."""
MIGRATION = 7_831_000_002
"""Held while the schema changes, for the session."""
EVENTS = 7_831_000_003
"""Held from taking an event id to commit, so that ids rise in commit order."""

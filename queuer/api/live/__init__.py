"""How it is now: health, overview, events."""

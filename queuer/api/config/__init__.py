"""The configuration: read it, plan a change, apply it."""

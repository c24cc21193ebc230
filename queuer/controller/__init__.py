"""Joins watching, deciding and acting: the one process that starts and evicts jobs."""

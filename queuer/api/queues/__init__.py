"""Queues with their live amounts."""

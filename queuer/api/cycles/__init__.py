"""Decisions, and what they say of the cluster."""

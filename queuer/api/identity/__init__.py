"""Callers, and their rights."""

"""Workloads, and why they wait."""

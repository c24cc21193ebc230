"""Rounds and how they are written; the auditor, which compares the ledger with the cluster."""

"""The decision: which whole gangs start now, where, and who is evicted for them. No I/O.

The rules are in docs/decision.md, the algorithm in docs/solver.md.
"""

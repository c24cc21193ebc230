"""Eviction: whom a gang may displace, and whom the plan chooses (DESIGN 3.3, docs/decision.md).

`Turns` lifts starts of this cycle first (`lifting`). Then it asks `search` for the cheapest victims. Rights say who may
go; candidates and grounds, where room can be made; a simple order and CP-SAT's `model`, which set goes.
"""

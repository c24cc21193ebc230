"""The decision: which whole gangs start now, where, and who is evicted for them (DESIGN 3, 4). No I/O."""

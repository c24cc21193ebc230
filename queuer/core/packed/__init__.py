"""`order: packed`: gangs of one priority are chosen together, for the largest sum."""

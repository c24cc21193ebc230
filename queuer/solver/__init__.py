"""The decision: a pure function from a snapshot to a plan. ortools is imported in this package alone."""

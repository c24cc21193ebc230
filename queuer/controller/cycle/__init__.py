"""One decision: what it is asked, what is committed of its answer, what is kept of it."""

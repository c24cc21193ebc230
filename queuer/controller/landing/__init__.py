"""A workload after its admission: what follows from its job and its pods."""

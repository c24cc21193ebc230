"""The controller's knowledge of the cluster and of the database; no I/O."""

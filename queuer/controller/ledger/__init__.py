"""What is written to the database, and whether it agrees with the cluster."""

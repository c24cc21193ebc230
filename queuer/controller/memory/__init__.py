"""What the controller knows of the cluster and of what is stored; no I/O."""

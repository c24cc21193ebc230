"""From a job that is seen to a workload that waits: read, checked, written down."""

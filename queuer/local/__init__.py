"""A whole cluster on this machine: Kubernetes, PostgreSQL, Queuer as processes; only kubelets are played."""

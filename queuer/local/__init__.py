"""A whole cluster on this machine: real Kubernetes parts as processes, PostgreSQL, Queuer; only kubelets are kwok's."""

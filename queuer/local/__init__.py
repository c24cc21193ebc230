"""A whole cluster on this machine: real Kubernetes parts, PostgreSQL and Queuer as processes; kwok plays kubelets."""

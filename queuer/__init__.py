"""Queuer: an admission-control job queue for Kubernetes.

Decides when whole jobs start on a cluster, and where in its topology; kube-scheduler places the pods.
"""

__version__ = "0.1.0"

"""Queues, flavors and topology: the objects of the cluster, and the revision in force."""

"""Reflectors of the cluster and how their objects are held in memory."""

"""The Kubernetes API as Queuer uses it: raw JSON over aiohttp, an own reflector, one row per job kind, config CRs.

High-count objects (jobs, pods, nodes) are never held as typed client models: only the fields that are needed are
decoded. It knows nothing of the database.
"""

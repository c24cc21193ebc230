"""Committed effects are sent to the API server, one PATCH a job."""

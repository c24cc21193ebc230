"""Checks of what Queuer needs of a cluster. They read only, as whoever asks, and return findings."""

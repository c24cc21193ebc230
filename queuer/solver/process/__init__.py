"""The decision in a process of its own: what its parent does, what runs in it, and how they talk."""

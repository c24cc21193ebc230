"""The decision in a process of its own: `parent` asks, `serving` answers, `wire` is what they say."""

"""How long is fuzzed: a hundred examples of each test; with `--hypothesis-profile=fuzz` (`make fuzz`) thousands."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fuzz",
    max_examples=3_000,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

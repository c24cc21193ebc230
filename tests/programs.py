"""Programs that tests alone need. `python -m tests.programs` builds them, before the time of a test counts."""

from __future__ import annotations

from pathlib import Path

from queuer.local.binaries import Tool, default_cache, ensure_binaries
from queuer.local.progress import Reporter

PROMTOOL = Tool(
    name="promtool",
    programs=("promtool",),
    version_of="github.com/prometheus/prometheus",
    package="github.com/prometheus/prometheus/cmd/promtool",
    tags="remove_all_sd",  # clients of 25 clouds, which would be half of the build
)

LANDING_ORACLE = Tool(
    name="landing-oracle",
    programs=("landing-oracle",),
    version_of="sigs.k8s.io/scheduler-library",
    package=".",
)


def promtool() -> Path:
    """The program of Prometheus that checks rules and plays series against them."""
    return ensure_binaries(default_cache(), reporter=Reporter(), tools=(PROMTOOL,))["promtool"]


def landing_oracle() -> Path:
    """The program that asks kube-scheduler's filters where pods may go. `make test` does not build it."""
    return ensure_binaries(default_cache(), reporter=Reporter(), tools=(LANDING_ORACLE,))["landing-oracle"]


if __name__ == "__main__":
    promtool()

"""The main paths on each version of Kubernetes that Queuer has a control plane of, and a table of what held.

    python -m tests.compat [--version 1.35]

Kubernetes 1.35 is built first, which takes about ten minutes. Each version has a cluster of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from queuer.local.binaries import BY_VERSION, KUBERNETES, default_cache, ensure_binaries, tools_of
from queuer.local.progress import Reporter

PATHS: Mapping[str, tuple[str, ...]] = {
    "the demo's story": ("tests/e2e/test_story.py::test_the_story_plays_to_its_end_and_the_screens_show_it",),
    "a job starts and ends": ("tests/e2e/test_admission.py",),
    "gangs start whole": ("tests/e2e/test_gangs.py",),
    "landing": ("tests/e2e/test_landing.py",),
    "eviction, re-admission": ("tests/e2e/test_eviction.py",),
    "each kind's life": ("tests/e2e/test_conformance.py",),
    "repair after a lost node": ("tests/e2e/test_repair.py",),
    "forced jobs": ("tests/e2e/test_adopted.py",),
    "what a manifest lacks": ("tests/e2e/test_reduced.py",),
    "installed later": ("tests/e2e/test_installed_later.py",),
}
"""Tests that hold on every version."""
FULL_ONLY: Mapping[str, str] = {
    "tests/e2e/test_policies.py": "it reads what mutating policies write; test_reduced.py is its counterpart",
    "tests/e2e/test_policies_edits.py": "its jobs are created by manifests without the lines",
    "tests/e2e/test_policies_pods.py": "its jobs are created by manifests without the lines",
    "tests/e2e/test_required.py": "its jobs are created by manifests without the lines",
    "tests/e2e/test_chart_release.py": "it compares the rights of the full form alone",
    "tests/attacks": "its jobs are created by manifests without the lines",
}
"""Tests that need 1.36.2, each with the reason. The rules that they try are shared by both forms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How the tests of one path went."""

    passed: int
    failed: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        total = self.passed + len(self.failed)
        return f"{self.passed} of {total}, {self.seconds:.0f} s"


def run(version: str) -> dict[str, Result]:
    """Run all paths on a version; its programs are built before."""
    chosen = os.environ | {KUBERNETES.name: version}
    ensure_binaries(default_cache(), reporter=Reporter(), tools=tools_of(version))
    chosen.pop("QUEUER_TEST_CLUSTER", None)
    with tempfile.TemporaryDirectory(prefix="queuer-compat-") as home:
        report = Path(home) / "report.xml"
        tests = [test for found in PATHS.values() for test in found]
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *tests]
        subprocess.run(command, env=chosen, check=False)
        cases = ET.parse(report).getroot().iter("testcase") if report.exists() else ()
        return _by_path(list(cases))


def _by_path(cases: list[ET.Element]) -> dict[str, Result]:
    found = {}
    for path, tests in PATHS.items():
        files = [test.partition("::")[0].removesuffix(".py").replace("/", ".") for test in tests]
        own = [case for case in cases if case.get("classname", "") in files]
        failed = [case for case in own if list(case.iter("failure")) + list(case.iter("error"))]
        found[path] = Result(
            passed=len(own) - len(failed),
            failed=tuple(str(case.get("name")) for case in failed),
            seconds=sum(float(case.get("time", 0)) for case in own),
        )
    return found


def main() -> int:
    """Print the table; 1 where a path did not hold, or was not run."""
    options = argparse.ArgumentParser(prog="python -m tests.compat", description="The main paths by version.")
    options.add_argument("--version", choices=BY_VERSION, action="append", help="only this one")
    versions = options.parse_args().version or list(BY_VERSION)
    results = {version: run(version) for version in versions}
    sys.stdout.write(f"\n{'':28}" + "".join(f"{version:<20}" for version in versions) + "\n")
    for path in PATHS:
        row = "".join(f"{results[version][path]!s:<20}" for version in versions)
        sys.stdout.write(f"{path:28}{row}".rstrip() + "\n")
    sys.stdout.write("\nOn 1.36 alone:\n" + "".join(f"  {name}: {why}\n" for name, why in FULL_ONLY.items()))
    failures = [
        f"{version}: {path}: {name}\n"
        for version in versions
        for path, result in results[version].items()
        for name in result.failed or (() if result.passed else ("was not run",))
    ]
    sys.stdout.write("".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

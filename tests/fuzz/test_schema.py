"""The API keeps to the schema that it publishes, for an admin and for a plain tenant: as declared, never a 500.

Three things are left out. A tree document has rules that no schema says, so fitting the schema is no proof.
The probe's 503 says that nobody leads here. The stream never ends (`tests/api/test_stream.py`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from queuer.local.cluster import API_PART, Cluster
from tests.e2e import nursery

LONG = settings.get_current_profile_name() == "fuzz"
EXAMPLES = 100 if LONG else 5
"""For each operation, beside those that cover its parameters one by one."""
OPTIONS = (
    "--exclude-checks=positive_data_acceptance",
    "--exclude-path=/healthz/controller",
    "--exclude-path=/api/v1/stream",
)


@pytest.fixture
def url(cluster: Cluster, database_url: str) -> Iterator[str]:
    """The API beside a real API server, over an empty database."""
    nursery.start_part(cluster, API_PART, QUEUER_DATABASE_URL=database_url)
    yield cluster.queuer_url
    cluster.stop([API_PART])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("identity", "phases"),
    [("admin", "coverage,fuzzing"), ("alice", "coverage,fuzzing" if LONG else "fuzzing")],
)
def test_the_server_keeps_to_the_schema_that_it_publishes(
    url: str, cluster: Cluster, tmp_path: Path, identity: str, phases: str
) -> None:
    fuzzer = Path(sys.executable).with_name("schemathesis")
    done = subprocess.run(
        [fuzzer, "run", f"{url}/api/v1/openapi.json", f"--header=Authorization: Bearer {cluster.token(identity)}",
         f"--max-examples={EXAMPLES}", f"--phases={phases}", *OPTIONS, "--seed=1"],
        env={**os.environ, "NO_COLOR": "1"}, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1700,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    summary = re.search(r"Test cases:.*", done.stdout, re.DOTALL)
    print(identity, summary[0] if summary else done.stdout)  # noqa: T201 - the figure of a long run
